import { ActionIcon, Tooltip, useComputedColorScheme, useMantineColorScheme } from '@mantine/core';
import { Icon } from './icons';

export const Mark = ({ size = 16 }: { size?: number }) => (
  <svg width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor" strokeWidth="2.4" strokeLinecap="round" aria-hidden><circle cx="12" cy="8.5" r="4.2" /><path d="M12 12.8V21M12 17h4" /></svg>
);

export function ThemeButton() {
  const { setColorScheme } = useMantineColorScheme();
  const now = useComputedColorScheme('light', { getInitialValueInEffect: false });
  const other = now === 'dark' ? 'light' : 'dark';
  return <Tooltip label={other === 'dark' ? 'Dark' : 'Light'}><ActionIcon aria-label={`Use ${other} colours`} onClick={() => setColorScheme(other)}><Icon name={now === 'dark' ? 'sun' : 'moon'} /></ActionIcon></Tooltip>;
}
