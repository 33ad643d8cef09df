import type { Routine, SchemaType, Sequence } from '../../../api/database-schema.ts';
import { CodeBlock } from '../../../parts/copying/code-block.tsx';
import { qualifiedName } from '../../../quoting/quote-identifier.ts';
import { createSequence, ownSequence } from '../ddl/sequence-ddl.ts';
import { functionDdl, typeDdl } from '../ddl/type-and-function-ddl.ts';
import type { Extension } from '../schema-objects.ts';
import { ObjectActions } from './object-actions.tsx';
import { ObjectPage } from './object-page-layout.tsx';
import { TableLink } from './table-link.tsx';

export function TypePage({ type, canChange }: { readonly type: SchemaType; readonly canChange: boolean }) {
  const ddl = typeDdl(type);
  const what = type.kind === 'domain' ? 'DOMAIN' : 'TYPE';
  return (
    <ObjectPage
      schemaName={type.schema}
      name={type.name}
      kind={type.kind}
      comment={type.comment}
      actions={
        canChange && <ObjectActions what={what} schema={type.schema} name={type.name} comment={type.comment} again={ddl.join('\n')} />
      }
    >
      {type.labels !== null && (
        <ol class="labels">
          {type.labels.map((label) => (
            <li key={label}>
              <code>{label}</code>
            </li>
          ))}
        </ol>
      )}
      <CodeBlock text={ddl.join('\n')} />
    </ObjectPage>
  );
}

export function SequencePage({ sequence, canChange }: { readonly sequence: Sequence; readonly canChange: boolean }) {
  const { ownedBy, start, increment, minValue, maxValue, isCycling } = sequence;
  const own = ownSequence(sequence);
  const ddl = [createSequence(sequence), ...(own === undefined ? [] : [own])].join('\n');
  return (
    <ObjectPage
      schemaName={sequence.schema}
      name={sequence.name}
      kind="sequence"
      facts={[
        sequence.type,
        `from ${start} by ${increment}`,
        `${minValue} to ${maxValue}${isCycling ? ', then anew' : ''}`,
        ...(ownedBy === null
          ? []
          : [
              <span key="owner">
                of <TableLink schema={ownedBy.schema} name={ownedBy.table} address={qualifiedName(ownedBy.schema, ownedBy.table)} />.
                {ownedBy.column}
              </span>,
            ]),
      ]}
      actions={canChange && ownedBy === null && <ObjectActions what="SEQUENCE" schema={sequence.schema} name={sequence.name} again={ddl} />}
    >
      <CodeBlock text={ddl} />
    </ObjectPage>
  );
}

export function FunctionPage({ routine, canChange }: { readonly routine: Routine; readonly canChange: boolean }) {
  const { schema, name, kind, language, volatility, isSecurityDefiner, comment, returns } = routine;
  const ddl = functionDdl(routine).join('\n');
  const what = kind === 'procedure' ? 'PROCEDURE' : kind === 'aggregate' ? 'AGGREGATE' : 'FUNCTION';
  return (
    <ObjectPage
      schemaName={schema}
      name={name}
      kind={kind}
      comment={comment}
      facts={[
        `(${routine.arguments})`,
        ...(returns === null ? [] : [`returns ${returns}`]),
        language,
        ...(kind === 'procedure' ? [] : [volatility]),
        ...(isSecurityDefiner
          ? [
              <span key="definer" class="tag warning">
                runs with the rights of its owner
              </span>,
            ]
          : []),
      ]}
      actions={
        canChange && (
          <ObjectActions
            what={what}
            schema={schema}
            name={name}
            arguments={routine.identityArguments}
            comment={comment}
            again={ddl === '' ? undefined : ddl}
          />
        )
      }
    >
      {ddl === '' ? <p class="muted">The API does not show what an aggregate is made of.</p> : <CodeBlock text={ddl} />}
    </ObjectPage>
  );
}

export function ExtensionPage({ extension }: { readonly extension: Extension }) {
  return (
    <ObjectPage name={extension.name} kind="extension" facts={[`version ${extension.version}`, `in the schema ${extension.schema}`]}>
      <p class="muted">Its objects are not shown: they belong to the extension.</p>
    </ObjectPage>
  );
}
