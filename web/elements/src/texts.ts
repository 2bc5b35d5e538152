// The texts of the fields in six languages. A page can replace each of them by its name.
const languages = ['en', 'de', 'fr', 'es', 'pt', 'ja'];

/** Rows of a text in the order of languages. A row of one text is the same in all of them. */
export type Texts = Record<string, string[]>;

/** The texts of a locale such as de or pt-BR; English for an unknown one. */
export function textsOf(table: Texts, locale: string): Record<string, string> {
  const at = Math.max(0, languages.indexOf(locale.slice(0, 2).toLowerCase())), out: Record<string, string> = {};
  for (const name of Object.keys(table)) out[name] = table[name][at] ?? table[name][0];
  return out;
}

export const cardTexts: Texts = {
  title_card: ['Secure card form', 'Sicheres Kartenformular', 'Formulaire de carte sécurisé', 'Formulario de tarjeta seguro', 'Formulário de cartão seguro', '安全なカード入力フォーム'],
  number: ['Card number', 'Kartennummer', 'Numéro de carte', 'Número de tarjeta', 'Número do cartão', 'カード番号'],
  expiry: ['Expiration date', 'Ablaufdatum', 'Date d’expiration', 'Fecha de caducidad', 'Data de validade', '有効期限'],
  cvc: ['Security code', 'Prüfziffer', 'Code de sécurité', 'Código de seguridad', 'Código de segurança', 'セキュリティコード'],
  numberHint: ['1234 1234 1234 1234'],
  expiryHint: ['MM / YY', 'MM / JJ', 'MM / AA', 'MM / AA', 'MM / AA', '月 / 年'],
  cvcHint: ['CVC'],
  cvcHint4: ['4 digits', '4 Ziffern', '4 chiffres', '4 dígitos', '4 dígitos', '4桁'],
  number_required: ['Enter the card number.', 'Geben Sie die Kartennummer ein.', 'Saisissez le numéro de carte.', 'Introduzca el número de tarjeta.', 'Informe o número do cartão.', 'カード番号を入力してください。'],
  number_incomplete: ['The card number is too short.', 'Die Kartennummer ist zu kurz.', 'Le numéro de carte est trop court.', 'El número de tarjeta es demasiado corto.', 'O número do cartão é muito curto.', 'カード番号の桁数が足りません。'],
  number_invalid: ['The card number is not valid.', 'Die Kartennummer ist ungültig.', 'Le numéro de carte n’est pas valide.', 'El número de tarjeta no es válido.', 'O número do cartão não é válido.', 'カード番号が正しくありません。'],
  number_brand: ['This card brand is not accepted.', 'Diese Kartenmarke wird nicht akzeptiert.', 'Cette marque de carte n’est pas acceptée.', 'No se acepta esta marca de tarjeta.', 'Esta bandeira de cartão não é aceita.', 'このカードブランドは利用できません。'],
  expiry_required: ['Enter the expiration date.', 'Geben Sie das Ablaufdatum ein.', 'Saisissez la date d’expiration.', 'Introduzca la fecha de caducidad.', 'Informe a data de validade.', '有効期限を入力してください。'],
  expiry_incomplete: ['The expiration date is not complete.', 'Das Ablaufdatum ist unvollständig.', 'La date d’expiration est incomplète.', 'La fecha de caducidad está incompleta.', 'A data de validade está incompleta.', '有効期限が足りません。'],
  expiry_invalid: ['The expiration date is not valid.', 'Das Ablaufdatum ist ungültig.', 'La date d’expiration n’est pas valide.', 'La fecha de caducidad no es válida.', 'A data de validade não é válida.', '有効期限が正しくありません。'],
  expiry_past: ['The card has expired.', 'Die Karte ist abgelaufen.', 'La carte a expiré.', 'La tarjeta ha caducado.', 'O cartão venceu.', 'カードの有効期限が切れています。'],
  cvc_required: ['Enter the security code.', 'Geben Sie die Prüfziffer ein.', 'Saisissez le code de sécurité.', 'Introduzca el código de seguridad.', 'Informe o código de segurança.', 'セキュリティコードを入力してください。'],
  cvc_incomplete: ['The security code is too short.', 'Die Prüfziffer ist zu kurz.', 'Le code de sécurité est trop court.', 'El código de seguridad es demasiado corto.', 'O código de segurança é muito curto.', 'セキュリティコードの桁数が足りません。'],
};

export const revealTexts: Texts = {
  title_reveal: ['Your card', 'Ihre Karte', 'Votre carte', 'Su tarjeta', 'Seu cartão', 'お客様のカード'],
  number: ['Card number', 'Kartennummer', 'Numéro de carte', 'Número de tarjeta', 'Número do cartão', 'カード番号'],
  copy: ['Copy', 'Kopieren', 'Copier', 'Copiar', 'Copiar', 'コピー'],
  copied: ['Copied', 'Kopiert', 'Copié', 'Copiado', 'Copiado', 'コピーしました'],
  expires: ['Expires', 'Gültig bis', 'Expire fin', 'Caduca', 'Validade', '有効期限'],
  hidden: ['Hidden again.', 'Wieder verborgen.', 'De nouveau masqué.', 'Oculto de nuevo.', 'Oculto novamente.', '再び非表示になりました。'],
};
