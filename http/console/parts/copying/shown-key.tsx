import { urlOf } from '../../api/client.ts';
import { saveFile } from '../../downloads/save-file.ts';
import { Button } from '../button.tsx';
import { Checkbox } from '../fields.tsx';
import { Notice } from '../notice.tsx';
import { CodeBlock } from './code-block.tsx';

export interface ShownKeyProps {
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
