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

export const accountTexts: Texts = {
  title_bank: ['Secure bank account form', 'Sicheres Bankformular', 'Formulaire bancaire sécurisé', 'Formulario bancario seguro', 'Formulário bancário seguro', '安全な口座入力フォーム'],
  routing: ['Routing number', 'Routingnummer', 'Numéro de routage', 'Número de ruta', 'Número de roteamento', 'ルーティング番号'],
  account: ['Account number', 'Kontonummer', 'Numéro de compte', 'Número de cuenta', 'Número da conta', '口座番号'],
  iban: ['IBAN'],
  text: ['Number', 'Nummer', 'Numéro', 'Número', 'Número', '番号'],
  routingHint: ['110000000'],
  accountHint: ['000123456789'],
  ibanHint: ['DE00 0000 0000 0000 0000 00'],
  textHint: [' '],
  routing_required: ['Enter the routing number.', 'Geben Sie die Routingnummer ein.', 'Saisissez le numéro de routage.', 'Introduzca el número de ruta.', 'Informe o número de roteamento.', 'ルーティング番号を入力してください。'],
  routing_incomplete: ['The routing number is too short.', 'Die Routingnummer ist zu kurz.', 'Le numéro de routage est trop court.', 'El número de ruta es demasiado corto.', 'O número de roteamento é muito curto.', 'ルーティング番号の桁数が足りません。'],
  routing_invalid: ['The routing number is not valid.', 'Die Routingnummer ist ungültig.', 'Le numéro de routage n’est pas valide.', 'El número de ruta no es válido.', 'O número de roteamento não é válido.', 'ルーティング番号が正しくありません。'],
  account_required: ['Enter the account number.', 'Geben Sie die Kontonummer ein.', 'Saisissez le numéro de compte.', 'Introduzca el número de cuenta.', 'Informe o número da conta.', '口座番号を入力してください。'],
  account_invalid: ['The account number is not valid.', 'Die Kontonummer ist ungültig.', 'Le numéro de compte n’est pas valide.', 'El número de cuenta no es válido.', 'O número da conta não é válido.', '口座番号が正しくありません。'],
  iban_required: ['Enter the IBAN.', 'Geben Sie die IBAN ein.', 'Saisissez l’IBAN.', 'Introduzca el IBAN.', 'Informe o IBAN.', 'IBANを入力してください。'],
  iban_incomplete: ['The IBAN is too short.', 'Die IBAN ist zu kurz.', 'L’IBAN est trop court.', 'El IBAN es demasiado corto.', 'O IBAN é muito curto.', 'IBANの桁数が足りません。'],
  iban_country: ['This country has no IBANs.', 'Dieses Land hat keine IBANs.', 'Ce pays n’a pas d’IBAN.', 'Este país no tiene IBAN.', 'Este país não tem IBAN.', 'この国にはIBANがありません。'],
  iban_invalid: ['The IBAN is not valid.', 'Die IBAN ist ungültig.', 'L’IBAN n’est pas valide.', 'El IBAN no es válido.', 'O IBAN não é válido.', 'IBANが正しくありません。'],
  text_required: ['Enter the number.', 'Geben Sie die Nummer ein.', 'Saisissez le numéro.', 'Introduzca el número.', 'Informe o número.', '番号を入力してください。'],
  text_incomplete: ['The number is too short.', 'Die Nummer ist zu kurz.', 'Le numéro est trop court.', 'El número es demasiado corto.', 'O número é muito curto.', '番号の桁数が足りません。'],
};
