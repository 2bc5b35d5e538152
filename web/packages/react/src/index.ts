// The card fields as React components. React is the page's own: nothing of it is in here.
import { createElement, forwardRef, useEffect, useImperativeHandle, useLayoutEffect, useMemo, useRef, type ReactElement, type Ref } from 'react';
import { Elements, type CardElement, type ChangeEvent, type ElementOptions, type ElementsOptions, type FieldName, type Kind } from '@tokenkeep/elements';

export type * from '@tokenkeep/elements';
export { TokenkeepError } from '@tokenkeep/elements';

/** Fields that belong together. They are made again when the key or the vault changes, not when other options do. */
export function useElements(options: ElementsOptions): Elements {
  return useMemo(() => new Elements(options), [options.key, options.vault]);
}

export interface FieldProps extends ElementOptions {
  elements: Elements;
  className?: string;
  onReady?(): void;
  onChange?(e: ChangeEvent): void;
  onFocus?(e: { field: FieldName }): void;
  onBlur?(e: { field: FieldName }): void;
  onSubmit?(): void;
}

interface Props extends FieldProps { kind: Kind }

// The effect of the layout comes before the reference is set. StrictMode mounts twice: the first frame is removed again.
const Field = forwardRef<CardElement, Props>(function Field({ elements, kind, className, onReady, onChange, onFocus, onBlur, onSubmit, ...options }, ref) {
  const box = useRef<HTMLDivElement>(null), mounted = useRef<CardElement | null>(null), on = useRef<Record<string, ((e: never) => void) | undefined>>({});
  on.current = { ready: onReady, change: onChange, focus: onFocus, blur: onBlur, submit: onSubmit };
  useLayoutEffect(() => {
    const element = elements.create(kind, options);
    for (const type of ['ready', 'change', 'focus', 'blur', 'submit'] as const) element.on(type, (e: unknown) => on.current[type]?.(e as never));
    if (box.current) mounted.current = element.mount(box.current);
    return () => {
      element.unmount();
      mounted.current = null;
    };
  }, [elements, kind]);
  const { disabled } = options;
  useEffect(() => {
    if (disabled !== undefined) mounted.current?.setDisabled(disabled);
  }, [disabled]);
  useImperativeHandle(ref, () => mounted.current as CardElement, [elements, kind]);
  return createElement('div', { ref: box, className });
});

type Component = (props: FieldProps & { ref?: Ref<CardElement> }) => ReactElement;

const of = (kind: Kind, name: string): Component => {
  const component = forwardRef<CardElement, FieldProps>((props, ref) => createElement(Field, { ...props, kind, ref }));
  component.displayName = name;
  return component as unknown as Component;
};

/** Number, expiry and security code in one frame. */
export const Card = of('card', 'Card');
export const CardNumber = of('number', 'CardNumber');
export const CardExpiry = of('expiry', 'CardExpiry');
export const CardCvc = of('cvc', 'CardCvc');
/** US routing and account number. */
export const BankAccount = of('bank', 'BankAccount');
export const Iban = of('iban', 'Iban');
/** An identity number; format says which. */
export const TextField = of('text', 'TextField');
/** Shows a card: call reveal() of its reference. */
export const CardReveal = of('reveal', 'CardReveal');
