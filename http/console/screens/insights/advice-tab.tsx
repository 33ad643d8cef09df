import { useState } from 'preact/hooks';
import { useLoad } from '../../api/use-load.ts';
import { formatCount } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { CodeBlock } from '../../parts/copying/code-block.tsx';
import { Empty } from '../../parts/empty.tsx';
import { Loaded } from '../../parts/loaded.tsx';
import { Notice } from '../../parts/notice.tsx';
import { openInEditor } from '../sql/sql-screen-state.ts';
import { textOfRule } from './advice-texts.ts';
import { type Advice, type AdviceReply, readAdvice } from './insights-calls.ts';
import { MigrationButton } from './migration-button.tsx';

/** What could be better in the schema. */
export function AdviceTab() {
  const load = useLoad(readAdvice);
  return (
    <>
      <div class="insight-bar">
        <Button kind="quiet" icon="reload" label="Load again" isBusy={load.isLoading} onClick={load.reload} />
        {load.data !== undefined && (
          <p class="muted number" role="status">
            {countsOf(load.data.advice)}. It is read from the catalogs and statistics; nothing is changed.
          </p>
        )}
      </div>
      <Loaded of={load}>{(reply) => <Groups reply={reply} />}</Loaded>
    </>
  );
}

function countsOf(advice: readonly Advice[]): string {
  const warnings = advice.filter(({ severity }) => severity === 'warning').length;
  const hints = advice.length - warnings;
  return `${formatCount(warnings)} ${warnings === 1 ? 'warning' : 'warnings'}, ${formatCount(hints)} ${hints === 1 ? 'hint' : 'hints'}`;
}

function Groups({ reply: { advice, isComplete } }: { readonly reply: AdviceReply }) {
  if (advice.length === 0) {
    return (
      <Empty icon="check" title="Nothing to advise">
        <p>None of the rules finds anything in what this key sees. Some go by how tables are used, so they need some time.</p>
      </Empty>
    );
  }
  return (
    <>
      {!isComplete && (
        <Notice tone="info">
          <p>There is more: 50 pieces of advice by each rule are shown, and 200 in all.</p>
        </Notice>
      )}
      {[...new Set(advice.map(({ rule }) => rule))].map((rule) => (
        <Group key={rule} rule={rule} found={advice.filter((one) => one.rule === rule)} />
      ))}
    </>
  );
}

/** How many objects of a rule are shown at first. */
const SHOWN_FIRST = 5;

function Group({ rule, found }: { readonly rule: string; readonly found: readonly Advice[] }) {
  const [isWhole, setWhole] = useState(false);
  const { title, why, caution, isAlike = false } = textOfRule(rule);
  const cures = found.flatMap(({ cure }) => (cure === null ? [] : [cure]));
  const isWarning = found[0]?.severity === 'warning';
  const rest = found.length - SHOWN_FIRST;
  return (
    <section class="advice-group">
      <header>
        <div>
          <h2>
            {title} <span class={isWarning ? 'tag warning' : 'tag'}>{isWarning ? 'warning' : 'hint'}</span>
          </h2>
          <p>{why}</p>
          {caution !== undefined && cures.length > 0 && <p class="muted">{caution}</p>}
        </div>
        {cures.length > 1 && (
          <MigrationButton about={rule} cures={cures}>
            {`All ${cures.length} as one migration`}
          </MigrationButton>
        )}
      </header>
      <ul>
        {(isWhole ? found : found.slice(0, SHOWN_FIRST)).map((advice) => (
          <Item key={JSON.stringify([advice.schema, advice.table, advice.object])} of={advice} hasMessage={!isAlike} />
        ))}
      </ul>
      {!isWhole && rest > 0 && (
        <Button kind="quiet" icon="down" onClick={() => setWhole(true)}>
          {`Show ${rest} more`}
        </Button>
      )}
    </section>
  );
}

function Item({ of: { rule, schema, table, object, message, cure }, hasMessage }: { readonly of: Advice; readonly hasMessage: boolean }) {
  const about = [rule, table, object].filter(Boolean).join(' ');
  return (
    <li>
      <p class="advice-object">
        <code>
          {schema}.{table ?? object}
        </code>
        {table !== null && object !== null && <code class="muted">{object}</code>}
      </p>
      {hasMessage && <p class="muted">{message}</p>}
      {cure !== null && (
        <>
          <CodeBlock text={cure} />
          <div class="actions">
            <MigrationButton about={about} cures={[cure]}>
              As migration
            </MigrationButton>
            <Button icon="sql" onClick={() => openInEditor(cure)}>
              Open in SQL
            </Button>
          </div>
        </>
      )}
    </li>
  );
}
