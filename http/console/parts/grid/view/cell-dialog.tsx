import { useState } from 'preact/hooks';
import { formatCount } from '../../../format.ts';
import { Button } from '../../button.tsx';
import { CodeBlock } from '../../copying/code-block.tsx';
import { CopyButton } from '../../copying/copy-button.tsx';
import { Dialog } from '../../dialog.tsx';
import { Field } from '../../fields.tsx';
import type { GridColumn } from '../grid-source.ts';
import { indentJson } from '../indent-json.ts';
import { isJson, lineOf } from '../value-text.ts';

export interface CellDialogProps {
  readonly column: GridColumn;
  /** Undefined: NULL. */
  readonly text: string | undefined;
  /** Where the value can be changed. */
  readonly onSave: ((text: string | undefined) => void) | undefined;
  readonly onClose: () => void;
}

/** Browsers need seconds to lay out much longer texts. */
const SHOWN_MAX = 50_000;

/** A value as large as it is: to be read, or to be changed. */
export function CellDialog({ column, text, onSave, onClose }: CellDialogProps) {
  return (
    <Dialog title={lineOf(column.name)} class="wide cell-dialog" onClose={onClose}>
      {onSave === undefined ? (
        <Shown column={column} text={text} onClose={onClose} />
      ) : (
        <Edited column={column} text={text} onSave={onSave} onClose={onClose} />
      )}
    </Dialog>
  );
}

function Shown({ column, text, onClose }: Omit<CellDialogProps, 'onSave'>) {
  const [isIndented, setIndented] = useState(true);
  const canIndent = isJson(column.type);
  const whole = text !== undefined && canIndent && isIndented ? indentJson(text) : (text ?? '');
  const isCut = whole.length > SHOWN_MAX;
  return (
    <>
      <p class="muted">{sizeOf(column, text)}</p>
      {text === undefined ? (
        <p class="grid-null">NULL</p>
      ) : text === '' ? (
        <p class="muted">The text is empty.</p>
      ) : (
        <CodeBlock text={whole.slice(0, SHOWN_MAX)} />
      )}
      {isCut && <p class="muted">These are the first {formatCount(SHOWN_MAX)} characters.</p>}
      <footer>
        {isCut && <CopyButton text={whole} label="Copy all" />}
        {canIndent && text !== undefined && (
          <Button kind="quiet" pressed={isIndented} onClick={() => setIndented(!isIndented)}>
            Indented
          </Button>
        )}
        <Button onClick={onClose}>Close</Button>
      </footer>
    </>
  );
}

function Edited({ column, text, onSave, onClose }: CellDialogProps & { readonly onSave: (text: string | undefined) => void }) {
  const [edited, setEdited] = useState(text);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    onSave(edited);
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: a key that the button below has too
    <div class="form" onKeyDown={onKeyDown}>
      <Field
        label="Value"
        isMono
        rows={12}
        value={edited ?? ''}
        placeholder={edited === undefined ? 'NULL' : 'an empty text'}
        hint={sizeOf(column, edited)}
        onInput={setEdited}
      />
      <footer>
        {isJson(column.type) && edited !== undefined && (
          <Button kind="quiet" onClick={() => setEdited(indentJson(edited))}>
            Indent
          </Button>
        )}
        <Button
          kind="quiet"
          pressed={edited === undefined}
          title="No value, which is not the same as an empty text"
          onClick={() => setEdited(edited === undefined ? '' : undefined)}
        >
          NULL
        </Button>
        <Button onClick={onClose}>Cancel</Button>
        <Button kind="primary" title="Ctrl Enter" onClick={() => onSave(edited)}>
          Set value
        </Button>
      </footer>
    </div>
  );
}

function sizeOf({ type }: GridColumn, text: string | undefined): string {
  if (text === undefined) return `${type} · NULL`;
  return `${type} · ${formatCount(text.length)} ${text.length === 1 ? 'character' : 'characters'}`;
}
