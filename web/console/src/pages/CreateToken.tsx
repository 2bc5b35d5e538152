import { Select, Textarea, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { useNavigate } from 'react-router';
import { call, type Token } from '../api';
import { Note, Sheet } from '../ui';
import { tokenTypes } from '../words';

const types = Object.entries(tokenTypes).map(([value, t]) => ({ value, label: t.one.replace(/^./, (c) => c.toUpperCase()) }));

/** pairs reads lines of the form name=value. */
export function pairs(text: string): Record<string, string> | undefined {
  const out: Record<string, string> = {};
  for (const line of text.split('\n').map((l) => l.trim()).filter(Boolean)) {
    const at = line.indexOf('=');
    if (at < 1) throw new Error(`"${line}" is not of the form name=value`);
    out[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return Object.keys(out).length ? out : undefined;
}

/** anyJSON reads a value of any type: what is not JSON is a string. */
const anyJSON = (text: string): unknown => { try { return JSON.parse(text); } catch { return text; } };

/** CreateToken stores a value. What is typed lives in this dialog, and is forgotten when it closes. */
export function CreateToken({ opened, close }: { opened: boolean; close: () => void }) {
  const client = useQueryClient(), go = useNavigate();
  const [type, setType] = useState('card'), [field, setField] = useState<Record<string, string>>({}), [id, setId] = useState(''), [containers, setContainers] = useState(''), [metadata, setMetadata] = useState('');
  useEffect(() => { if (!opened) { setField({}); setId(''); setContainers(''); setMetadata(''); } }, [opened]);
  const bind = (name: string) => ({ value: field[name] ?? '', onChange: (e: { currentTarget: { value: string } }) => { const value = e.currentTarget.value; setField((f) => ({ ...f, [name]: value })); }, autoComplete: 'off', spellCheck: false });
  const data = () => {
    if (type === 'card') {
      const [month, year] = (field.expiry ?? '').split('/').map((s) => s.trim());
      return { number: field.number?.replace(/[\s-]/g, ''), ...(month ? { expiration_month: Number(month), expiration_year: Number(year && year.length === 2 ? `20${year}` : year) } : {}), ...(field.cvc ? { cvc: field.cvc } : {}) };
    }
    if (type === 'bank') return { routing_number: field.routing, account_number: field.account };
    return type === 'token' ? anyJSON(field.any ?? '') : field.any;
  };
  const run = async () => {
    const made = await call<Token>('POST', '/tokens', { type, data: data(), id: id.trim() || undefined, containers: containers.trim() ? containers.split(/[\s,]+/).filter(Boolean) : undefined, metadata: pairs(metadata) });
    close();
    await client.invalidateQueries({ queryKey: ['tokens'] });
    go(`/tokens/${encodeURIComponent(made.id)}`);
  };
  const ready = type === 'card' ? !!field.number : type === 'bank' ? !!field.routing && !!field.account : !!field.any;
  const mono = { input: { fontFamily: 'var(--mantine-font-family-monospace)' } };
  return (
    <Sheet opened={opened} close={close} title="New token" action="Create token" run={run} ready={ready}>
      <Select label="What it is" allowDeselect={false} data={types} value={type} onChange={(v) => v && setType(v)} />
      {type === 'card' ? (
        <><TextInput label="Number" inputMode="numeric" styles={mono} {...bind('number')} /><div className="row" style={{ alignItems: 'flex-end' }}><TextInput className="grow" label="Expiry" placeholder="MM/YY" inputMode="numeric" {...bind('expiry')} /><TextInput className="grow" label="Security code" description="Gone within the hour" inputMode="numeric" {...bind('cvc')} /></div></>
      ) : type === 'bank' ? (
        <><TextInput label="Routing number" styles={mono} {...bind('routing')} /><TextInput label="Account number" styles={mono} {...bind('account')} /></>
      ) : <Textarea label={type === 'token' ? 'Value: text, or any JSON' : 'Value'} autosize minRows={2} styles={mono} {...bind('any')} />}
      <TextInput label="Id" description="Left empty, the vault makes one. It must not tell the value." value={id} onChange={(e) => setId(e.currentTarget.value)} />
      <TextInput label="Containers" description="Left empty, those of its type. Rules grant access by container." placeholder="/pci/high/" styles={mono} value={containers} onChange={(e) => setContainers(e.currentTarget.value)} />
      <Textarea label="Metadata" description="One name=value per line. It is not masked: no values here." autosize minRows={2} placeholder="order=1001" value={metadata} onChange={(e) => setMetadata(e.currentTarget.value)} />
      <Note icon="lock">What you type goes to this server only, and is forgotten when this dialog closes.</Note>
    </Sheet>
  );
}
