import { BankAccount, Card, CardCvc, CardReveal, Iban, TextField, useElements, type ChangeEvent } from '@tokenkeep/react';

export function Checkout({ publicKey }: { publicKey: string }) {
  const fields = useElements({ key: publicKey, vault: 'https://vault.example' });
  const changed = (e: ChangeEvent) => console.log(e.complete);
  return (
    <form onSubmit={(e) => { e.preventDefault(); void fields.tokenize({ session: 'key_test_sess_x' }).then(({ id }) => id); }}>
      <Card elements={fields} layout="stacked" onChange={changed} className="card" disabled={false} />
      <CardCvc elements={fields} ref={(cvc) => cvc?.focus()} />
      <CardReveal elements={fields} />
      <BankAccount elements={fields} />
      <Iban elements={fields} onSubmit={() => undefined} />
      <TextField elements={fields} format="ssn" />
    </form>
  );
}
