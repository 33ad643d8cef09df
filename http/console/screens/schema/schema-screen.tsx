import { useEffect } from 'preact/hooks';
import type { Schema } from '../../api/database-schema.ts';
import { loadSchema } from '../../api/load-schema.ts';
import { useLoad } from '../../api/use-load.ts';
import { Button } from '../../parts/button.tsx';
import { Empty } from '../../parts/empty.tsx';
import { ScreenPage } from '../../parts/layout.tsx';
import { Loaded } from '../../parts/loaded.tsx';
import { Notice } from '../../parts/notice.tsx';
import { isOwner } from '../../session/session.ts';
import { type Command, screenCommands } from '../../shell/palette-commands.ts';
import { goTo } from '../../shell/route.ts';
import { ShownChangeDialog } from './change-dialogs.tsx';
import { openChange } from './changes.ts';
import { Diagram } from './diagram.tsx';
import { ExtensionPage, FunctionPage, Overview, SequencePage, TablePage, TypePage } from './objects.tsx';
import { addressOf, objectsOf, type SchemaObject } from './schema-objects.ts';
import { SchemaTree } from './tree.tsx';

const DIAGRAM = 'diagram';

/** @param rest the address of an object: `public.orders`; `diagram`; or nothing */
export function SchemaScreen({ rest }: { readonly rest: string }) {
  const load = useLoad(loadSchema);
  const canChange = isOwner();
  const { data } = load;
  useEffect(() => {
    screenCommands.value = [...commandsOf(data, canChange)];
    return () => {
      screenCommands.value = [];
    };
  }, [data, canChange]);
  const isDiagram = rest === DIAGRAM;
  const actions = (
    <>
      <Button kind="quiet" icon="reload" label="Load again" isBusy={load.isLoading} onClick={load.reload} />
      <Button icon="schema" pressed={isDiagram} onClick={() => goTo('schema', isDiagram ? '' : DIAGRAM)}>
        Diagram
      </Button>
      {canChange && (
        <Button kind="primary" icon="plus" onClick={() => openChange({ kind: 'new table' })}>
          New table
        </Button>
      )}
    </>
  );
  return (
    <ScreenPage title="Schema" actions={actions} isFull>
      <Loaded of={load}>
        {(schema) => (
          <div class={rest === '' ? 'schema' : 'schema opened'}>
            {!isDiagram && <SchemaTree schema={schema} current={rest} />}
            <div class="schema-detail">
              <Incomplete schema={schema} />
              {isDiagram ? <Diagram schema={schema} /> : <Detail key={rest} schema={schema} address={rest} canChange={canChange} />}
            </div>
            <ShownChangeDialog schema={schema} />
          </div>
        )}
      </Loaded>
    </ScreenPage>
  );
}

interface DetailProps {
  readonly schema: Schema;
  readonly address: string;
  readonly canChange: boolean;
}

function Detail({ schema, address, canChange }: DetailProps) {
  if (address === '') return <Overview schema={schema} />;
  const object = objectsOf(schema).find((one) => addressOf(one) === address);
  if (object === undefined)
    return (
      <Empty icon="search" title="There is no such object">
        <p>Nothing that this key may see has the name {address}. It may have been renamed or dropped.</p>
        <Button onClick={() => goTo('schema')}>All objects</Button>
      </Empty>
    );
  return <ObjectDetail schema={schema} object={object} canChange={canChange} />;
}

function ObjectDetail({ schema, object, canChange }: Omit<DetailProps, 'address'> & { readonly object: SchemaObject }) {
  switch (object.kind) {
    case 'table':
      return <TablePage schema={schema} table={object.of} canChange={canChange} />;
    case 'sequence':
      return <SequencePage sequence={object.of} canChange={canChange} />;
    case 'type':
      return <TypePage type={object.of} canChange={canChange} />;
    case 'function':
      return <FunctionPage routine={object.of} canChange={canChange} />;
    case 'extension':
      return <ExtensionPage extension={object.of} />;
  }
}

/** What the server has left out. */
function Incomplete({ schema: { warnings = [] } }: { readonly schema: Schema }) {
  return (
    <>
      {warnings.map(({ message }) => (
        <Notice key={message} tone="warning">
          <p>{message}</p>
        </Notice>
      ))}
    </>
  );
}

function* commandsOf(schema: Schema | undefined, canChange: boolean): Generator<Command> {
  yield { title: 'Diagram', group: 'Schema', icon: 'schema', run: () => goTo('schema', DIAGRAM) };
  if (schema === undefined) return;
  if (canChange) yield { title: 'New table', group: 'Schema', icon: 'plus', run: () => openChange({ kind: 'new table' }) };
  for (const of of schema.tables) {
    const address = addressOf({ kind: 'table', of });
    yield { title: address, group: of.kind === 'view' ? 'View' : 'Table', icon: 'table', run: () => goTo('schema', address) };
  }
}
