import { useState } from 'preact/hooks';
import { Button } from '../button.tsx';

const SAID_MS = 1_500;

/** @throws when the browser refuses */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard !== undefined) return navigator.clipboard.writeText(text);
  // Browsers have a clipboard only for pages over TLS, and of this machine.
  const area = Object.assign(document.createElement('textarea'), { value: text, className: 'unseen' });
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand('copy');
  area.remove();
  if (!isCopied) throw new Error('the browser does not let this page copy');
}

export interface CopyButtonProps {
  readonly text: string | (() => string);
  readonly label?: string;
  /** Where there is little space. */
  readonly isSmall?: boolean;
}

export function CopyButton({ text, label = 'Copy', isSmall = false }: CopyButtonProps) {
  const [said, setSaid] = useState<string>();
  const copy = async () => {
    const isCopied = await copyText(typeof text === 'string' ? text : text()).then(
      () => true,
      () => false,
    );
    setSaid(isCopied ? 'Copied' : 'The browser refuses');
    setTimeout(() => setSaid(undefined), SAID_MS);
  };
  const icon = said === 'Copied' ? 'check' : 'copy';
  const onClick = () => void copy();
  if (isSmall) return <Button kind="quiet" icon={icon} label={said ?? label} onClick={onClick} />;
  return (
    <Button kind="quiet" icon={icon} class="copy" onClick={onClick}>
      {said ?? label}
    </Button>
  );
}
