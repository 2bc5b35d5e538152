import { ActionIcon, Button, TextInput, Tooltip } from '@mantine/core';
import { useState, type KeyboardEvent } from 'react';
import type { Rule, Step, Transform } from '../api';
import { Icon } from '../icons';
import { Empty } from '../ui';
import { permission as words, shows } from '../words';

export const tokenPermissions = ['token:create', 'token:read', 'token:search', 'token:use', 'token:update', 'token:delete'];
const rulePermissions = ['token:read', 'token:search', 'token:use', 'token:create', 'token:update', 'token:delete'];
const transforms: Transform[] = ['redact', 'mask', 'reveal'];
export const isPath = (text: string) => /^\/([A-Za-z0-9_-]+\/)*$/.test(text);

/** DraftRule is a rule while it is edited: uid stays with it when it moves. */
export type DraftRule = Rule & { uid: number };
let uid = 0;
export const draftRules = (rules: Rule[]): DraftRule[] => [...rules].sort((x, y) => (x.priority ?? 0) - (y.priority ?? 0)).map((r) => ({ ...r, uid: ++uid }));
/** bare returns rules as the server takes them: their order is their priority. */
export const bare = (rules: DraftRule[]): Rule[] => rules.map(({ uid: _, priority: __, ...r }) => ({ ...r, description: r.description || undefined }));

function Shows({ value, set, label }: { value: Transform; set: (t: Transform) => void; label: string }) {
  const step = (e: KeyboardEvent<HTMLButtonElement>, t: Transform) => {
    const by = ['ArrowRight', 'ArrowDown'].includes(e.key) ? 1 : ['ArrowLeft', 'ArrowUp'].includes(e.key) ? -1 : 0;
    if (!by || e.altKey) return;
    e.preventDefault();
    const next = transforms[(transforms.indexOf(t) + by + 3) % 3]!;
    set(next);
    (e.currentTarget.parentElement?.children[transforms.indexOf(next)] as HTMLElement | undefined)?.focus();
  };
  return <div className="shows" role="radiogroup" aria-label={label}>{transforms.map((t) => <button key={t} type="button" role="radio" aria-checked={value === t} tabIndex={value === t ? 0 : -1} className={t} onClick={() => set(t)} onKeyDown={(e) => step(e, t)}>{shows[t]}</button>)}</div>;
}

function RuleRow({ r, i, n, step, change, move, remove, drag }: { r: Rule; i: number; n: number; step?: Step; change: (r: Partial<Rule>) => void; move: (to: number) => void; remove: () => void; drag: { from?: number; set: (i?: number) => void } }) {
  const [over, setOver] = useState(false), [grip, setGrip] = useState(false);
  const bad = !isPath(r.container);
  return (
    <li onKeyDown={(e) => { if (e.altKey && e.key === 'ArrowUp' && i > 0) { e.preventDefault(); move(i - 1); } if (e.altKey && e.key === 'ArrowDown' && i < n - 1) { e.preventDefault(); move(i + 1); } }} className={`rule ${step?.decides ? 'decides' : ''} ${over ? 'over' : ''}`} draggable={grip}
      onDragStart={() => drag.set(i)} onDragEnd={() => { drag.set(undefined); setGrip(false); }} onDragOver={(e) => { if (drag.from !== undefined) { e.preventDefault(); setOver(true); } }} onDragLeave={() => setOver(false)} onDrop={(e) => { e.preventDefault(); setOver(false); if (drag.from !== undefined) move(drag.from); }}>
      <span className="grip" onPointerDown={() => setGrip(true)} onPointerUp={() => setGrip(false)} title="Drag, or press Alt with an arrow key, to reorder"><Icon name="grip" size={14} /></span>
      <span className="n">{i + 1}</span>
      <div className="stack" style={{ gap: 8 }}>
        <div className="row wrap">
          <TextInput aria-label={`Container of rule ${i + 1}`} value={r.container} onChange={(e) => change({ container: e.currentTarget.value })} error={bad && 'Begins and ends with /'} w={170} styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)' } }} />
          <span className="dim">shows</span><Shows label={`What rule ${i + 1} shows`} value={r.transform} set={(transform) => change({ transform })} />
        </div>
        <div className="row wrap" style={{ gap: 4 }} role="group" aria-label={`What rule ${i + 1} allows`}>{rulePermissions.map((p) => <Tooltip key={p} label={words[p]!.long}><button type="button" className="pill" aria-pressed={r.permissions.includes(p)} onClick={() => change({ permissions: r.permissions.includes(p) ? r.permissions.filter((x) => x !== p) : [...r.permissions, p] })}>{words[p]!.short}</button></Tooltip>)}</div>
        <TextInput aria-label={`Why rule ${i + 1} exists`} placeholder="Why this rule exists" variant="unstyled" value={r.description ?? ''} onChange={(e) => change({ description: e.currentTarget.value })} styles={{ input: { minHeight: 20, height: 20, color: 'var(--dim)' } }} />
        {step && <div className="verdict" style={{ margin: 0 }}><Icon name={step.decides ? 'check' : 'right'} size={12} />{step.decides ? 'This rule decides' : step.reason.replace(/^the rule /, '').replace(/^./, (c) => c.toUpperCase())}</div>}
      </div>
      <div className="row" style={{ gap: 0 }}>
        <ActionIcon size={24} aria-label={`Move rule ${i + 1} up`} disabled={i === 0} onClick={() => move(i - 1)}><Icon name="up" size={14} /></ActionIcon>
        <ActionIcon size={24} aria-label={`Move rule ${i + 1} down`} disabled={i === n - 1} onClick={() => move(i + 1)}><Icon name="down" size={14} /></ActionIcon>
        <ActionIcon size={24} aria-label={`Remove rule ${i + 1}`} onClick={remove}><Icon name="trash" size={14} /></ActionIcon>
      </div>
    </li>
  );
}

/** RuleList edits rules in their order, by mouse and by keyboard. */
export function RuleList({ rules, change, steps }: { rules: DraftRule[]; change: (rules: DraftRule[]) => void; steps?: Step[] }) {
  const [from, setFrom] = useState<number>();
  const move = (i: number, to: number) => { const r = [...rules]; const [x] = r.splice(i, 1); r.splice(to, 0, x!); change(r); };
  return (
    <>
      {rules.length === 0 ? <Empty icon="app" title="No rules">Without rules, the permissions below count for all tokens, masked.</Empty> : (
        <ol className="rules" aria-label="Access rules">{rules.map((r, i) => <RuleRow key={r.uid} r={r} i={i} n={rules.length} step={steps?.find((s) => s.rule === i)} change={(c) => change(rules.map((x) => (x === r ? { ...x, ...c } : x)))} move={(to) => (from !== undefined ? move(from, i) : move(i, to))} remove={() => change(rules.filter((x) => x !== r))} drag={{ from, set: setFrom }} />)}</ol>
      )}
      <footer><Button variant="default" leftSection={<Icon name="plus" size={14} />} onClick={() => change([...rules, { uid: ++uid, container: '/general/', transform: 'mask', permissions: ['token:read'] }])}>Add a rule</Button></footer>
    </>
  );
}
