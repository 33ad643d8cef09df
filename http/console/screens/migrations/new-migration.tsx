import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Editor, type EditorProps } from '../../editor/editor.tsx';
import type { EditorError } from '../../editor/error-range.ts';
import { formatCount } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { Confirmation } from '../../parts/dialog.tsx';
import { Checkbox, Choice, Field } from '../../parts/fields.tsx';
import { ScreenPage } from '../../parts/layout/screen-page.tsx';
import { Notice } from '../../parts/notice.tsx';
import { me } from '../../session/me.ts';
import { statementTimeoutChoices } from '../../session/statement-timeout-choices.ts';
import { screenCommands } from '../../shell/palette-commands.ts';
import { goTo } from '../../shell/route.ts';
import { type FoundDestruction, readScript, type Script } from './destructions.ts';
import { begin, change, type Draft, draft, requestOf, rollbackText, sqlText } from './draft.ts';
import { errorIn } from './error-place.ts';
import { OutcomeNotice } from './outcome-notice.tsx';
import { isOf, outcome, run } from './run-migration.ts';

/** A migration is written, tried out and applied. */
export function NewMigration() {
  const [isAsked, ask] = useState(false);
  const now = draft.value;
  const known = outcome.value;
  const script = readScript(now.sql);
  const isRunning = known?.state === 'running';
  const isReady = now.name.trim() !== '' && now.sql.trim() !== '' && !isRunning;
  const result = useRef<HTMLDivElement>(null);
  useEffect(() => result.current?.scrollIntoView({ block: 'nearest' }), [known]);
  useEffect(() => {
    // What went through was another one.
    if (known?.state === 'done' && !isOf(known, now)) outcome.value = undefined;
  }, [known, now]);
  const tryOut = () => void run(requestOf(draft.peek(), true));
  useEffect(() => {
    screenCommands.value = [
      { title: 'Dry run', group: 'Migration', icon: 'play', run: tryOut },
      { title: 'To the history', group: 'Migration', icon: 'steps', run: () => goTo('migrations') },
    ];
    return () => {
      screenCommands.value = [];
    };
  }, []);
  const actions = <Button onClick={() => goTo('migrations')}>History</Button>;
  return (
    <ScreenPage title="New migration" lead="Try it out, then apply it: once, and written down in the history." actions={actions}>
      <form
        class="form migration-form"
        onSubmit={(event) => {
          event.preventDefault();
          ask(true);
        }}
      >
        <Field label="Name" value={now.name} onInput={(name) => change({ name })} placeholder={`${today()}-orders`} isMono isRequired />
        <SqlField
          label="SQL"
          text={sqlText}
          error={useMemo(() => errorIn('sql', known, now), [known, now.sql])}
          placeholder={EXAMPLE}
          onRun={() => isReady && now.isTransaction && tryOut()}
        />
        <Options now={now} backError={useMemo(() => errorIn('rollbackSql', known, now), [known, now.rollbackSql])} />
        {known?.state !== 'done' && <Destructions of={script} />}
        <div class="actions">
          <Button icon="play" isDisabled={!isReady || !now.isTransaction} isBusy={isRunning && known.request.dryRun} onClick={tryOut}>
            {now.hasRollback ? 'Dry run, there and back' : 'Dry run'}
          </Button>
          <Button kind="primary" type="submit" isDisabled={!isReady} isBusy={isRunning && !known.request.dryRun}>
            Apply …
          </Button>
          {isRunning && (
            <Button icon="stop" onClick={known.cancel}>
              Cancel
            </Button>
          )}
          {!isRunning && now.sql !== '' && (
            <Button kind="quiet" onClick={() => clear()}>
              Clear
            </Button>
          )}
        </div>
      </form>
      <div class="form migration-outcome" aria-live="polite" ref={result}>
        {known !== undefined && <OutcomeNotice of={known} />}
      </div>
      {isAsked && (
        <Apply
          now={now}
          script={script}
          onClose={() => ask(false)}
          onConfirm={() => {
            ask(false);
            void run(requestOf(draft.peek(), false));
          }}
        />
      )}
    </ScreenPage>
  );
}

const EXAMPLE = 'create table customers (name text primary key);\ninsert into customers select distinct customer from orders;';

function today(): string {
  return new Date().toISOString().slice(0, 10);
}

function clear(): void {
  begin();
  outcome.value = undefined;
}

function SqlField({ hint, ...props }: EditorProps & { readonly hint?: string }) {
  return (
    <div class="field">
      <span class="label">{props.label}</span>
      <Editor {...props} />
      {hint !== undefined && <p class="muted">{hint}</p>}
    </div>
  );
}

function Options({ now, backError }: { readonly now: Draft; readonly backError: EditorError | undefined }) {
  return (
    <>
      <div class="migration-options">
        <Checkbox label="With SQL that undoes it" isChecked={now.hasRollback} onChange={(hasRollback) => change({ hasRollback })} />
        <Checkbox label="In one transaction" isChecked={now.isTransaction} onChange={(isTransaction) => change({ isTransaction })} />
        <Choice
          label="Time limit"
          hideLabel
          value={now.timeLimit}
          options={statementTimeoutChoices(TIME_LIMITS_MS)}
          onChange={(timeLimit) => change({ timeLimit })}
        />
      </div>
      {now.hasRollback && (
        <SqlField
          label="SQL that undoes it"
          text={rollbackText}
          error={backError}
          hint="The dry run proves it: forward, back and forward again. The history keeps it."
          placeholder="drop table customers;"
        />
      )}
      {!now.isTransaction && (
        <Notice tone="warning">
          <p>
            Statement by statement, for CREATE INDEX CONCURRENTLY and the like: where one fails, what the earlier ones did stays. There is
            no dry run.
          </p>
        </Notice>
      )}
    </>
  );
}

const TIME_LIMITS_MS = [60_000, 300_000, 1_800_000];

/** Named while they are written, before anything runs. */
function Destructions({ of: script }: { readonly of: Script | undefined }) {
  if (script === undefined)
    return <p class="muted">The text is too long to be looked through here. The dry run names what destroys data.</p>;
  if (script.destructions.length === 0) return null;
  return (
    <Notice tone="warning">
      <DestructionList of={script.destructions} />
    </Notice>
  );
}

function DestructionList({ of: destructions }: { readonly of: readonly FoundDestruction[] }) {
  return (
    <ul class="by-line">
      {destructions.map(({ line, message }) => (
        <li key={`${line} ${message}`}>
          <span class="muted number">line {line}</span>
          <span>{message}</span>
        </li>
      ))}
    </ul>
  );
}

interface ApplyProps {
  readonly now: Draft;
  readonly script: Script | undefined;
  readonly onConfirm: () => void;
  readonly onClose: () => void;
}

function Apply({ now, script, onConfirm, onClose }: ApplyProps) {
  const destructions = script?.destructions ?? [];
  const { statements } = script ?? {};
  const what = statements === undefined ? 'All statements' : `${formatCount(statements)} ${statements === 1 ? 'statement' : 'statements'}`;
  return (
    <Confirmation
      title={`Apply “${now.name.trim()}”?`}
      action="Apply"
      isDangerous={destructions.length > 0}
      onConfirm={onConfirm}
      onClose={onClose}
    >
      <p>
        {what} {statements === 1 ? 'runs' : 'run'} in the database of {me.value?.orgName}
        {now.isTransaction ? ', in one transaction.' : ', one by one.'}
      </p>
      {destructions.length > 0 && (
        <Notice tone="warning">
          <DestructionList of={destructions} />
        </Notice>
      )}
    </Confirmation>
  );
}
