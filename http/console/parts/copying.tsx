import { useState } from 'preact/hooks';
import { urlOf } from '../api/client.ts';
import { Button } from './button.tsx';
import { saveFile } from './downloads.ts';
import { Checkbox } from './fields.tsx';
import { Notice } from './notice.tsx';

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

interface CopyButtonProps {
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

/** Text to be read or copied as it is. */
export function CodeBlock({ text, label }: { readonly text: string; readonly label?: string }) {
  return (
    <figure class="code">
      {label !== undefined && <figcaption>{label}</figcaption>}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what is wider than the screen is scrolled by keys */}
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
      <CopyButton text={text} />
    </figure>
  );
}

interface ShownKeyProps {
  readonly apiKey: string;
  readonly organizationId: string;
  /** With the key as its password. */
  readonly connectionString: string;
  /** What whoever has it may do, in a sentence. */
  readonly warning: string;
  readonly isKept: boolean;
  readonly onKept: (isKept: boolean) => void;
}

/** A key that nobody can be shown again: to be copied, or downloaded as .env. */
export function ShownKey({ warning, isKept, onKept, ...made }: ShownKeyProps) {
  return (
    <>
      <Notice tone="warning">
        <p>This key is shown only once. {warning}</p>
      </Notice>
      <CodeBlock text={made.apiKey} label="API key" />
      <Button icon="download" onClick={() => saveFile('.env', envOf(made))}>
        Download as .env
      </Button>
      <Checkbox label="I have kept the key" isChecked={isKept} onChange={onKept} />
    </>
  );
}

function envOf({
  apiKey,
  organizationId,
  connectionString,
}: Pick<ShownKeyProps, 'apiKey' | 'organizationId' | 'connectionString'>): string {
  const apiUrl = urlOf('.').href.replace(/\/$/, '');
  return `DATABASE_URL=${connectionString}\nORG=${organizationId}\nAPI_KEY=${apiKey}\nAPI_URL=${apiUrl}\n`;
}
