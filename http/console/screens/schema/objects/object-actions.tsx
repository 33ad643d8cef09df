import { Button } from '../../../parts/button.tsx';
import { type ObjectKind, openChange } from '../changes/open-change.ts';

interface ObjectActionsProps {
  readonly what: ObjectKind;
  readonly schema: string;
  readonly name: string;
  /** Of a function: what tells it from others of its name. */
  readonly arguments?: string;
  /** Undefined: the API does not show comments of this kind. */
  readonly comment?: string | null;
  /** SQL that makes it again. */
  readonly again?: string | undefined;
}

/** What can be done to any object. */
export function ObjectActions({ what, schema, name, comment, again, ...props }: ObjectActionsProps) {
  const object = { what, schema, name, ...(props.arguments === undefined ? {} : { arguments: props.arguments }) };
  return (
    <>
      <Button kind="quiet" icon="edit" onClick={() => openChange({ kind: 'rename', ...object })}>
        Rename …
      </Button>
      {comment !== undefined && (
        <Button kind="quiet" onClick={() => openChange({ kind: 'comment', ...object, comment })}>
          Comment …
        </Button>
      )}
      <Button kind="quiet" icon="trash" onClick={() => openChange({ kind: 'drop', ...object, again })}>
        Drop …
      </Button>
    </>
  );
}
