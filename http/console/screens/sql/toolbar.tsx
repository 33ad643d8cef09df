import { formatBytes } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { Checkbox, Choice } from '../../parts/fields.tsx';
import { MenuButton } from '../../parts/menus/menu-button.tsx';
import { me } from '../../session/me.ts';
import { statementTimeoutChoices } from '../../session/statement-timeout-choices.ts';
import { sayError } from '../../shell/toasts.tsx';
import { currentDownload } from './results/current-download.ts';
import { cancel, explainHere, runAll, runHere } from './run/lazy-actions.ts';
import { change, currentTab, settings } from './sql-screen-state.ts';

const TIME_LIMITS_MS = [5_000, 30_000, 60_000, 300_000];

export function Toolbar() {
  const { isReadOnly, timeLimit } = settings.value;
  const isReader = me.value?.key.scope === 'read';
  const isRunning = currentTab.value.run.value?.phase === 'running';
  return (
    <div class="sql-toolbar" role="toolbar" aria-label="Run">
      <div class="sql-run">
        {isRunning ? (
          <Button icon="stop" onClick={cancel}>
            Cancel
          </Button>
        ) : (
          <Button kind="primary" icon="play" title="Run what is selected, else the statement at the cursor (Ctrl Enter)" onClick={runHere}>
            Run
          </Button>
        )}
        <MenuButton
          label="More ways to run"
          kind={isRunning ? 'plain' : 'primary'}
          entries={[
            { title: 'Run what is selected, else the statement at the cursor', keys: 'Ctrl Enter', run: runHere },
            { title: 'Run all in one transaction', keys: 'Ctrl Shift Enter', run: runAll },
            { title: 'Run into a CSV file …', isFirst: true, run: () => void downloadHere('csv') },
            { title: 'Run into a JSON file …', run: () => void downloadHere('json') },
          ]}
        />
      </div>
      <Button title="Show how PostgreSQL would run it" isDisabled={isRunning} onClick={() => explainHere('explain')}>
        Explain
      </Button>
      <Button title="Run it, roll it back, and show where the time went" isDisabled={isRunning} onClick={() => explainHere('analyze')}>
        Analyze
      </Button>
      <DownloadButton />
      <div class="sql-options">
        {isReader ? (
          <span class="tag" title="The scope of the key is read">
            read-only key
          </span>
        ) : (
          <Checkbox label="Read only" isChecked={isReadOnly} onChange={(next) => change({ isReadOnly: next })} />
        )}
        <Choice
          label="Time limit"
          hideLabel
          value={timeLimit}
          options={statementTimeoutChoices(TIME_LIMITS_MS)}
          onChange={(next) => change({ timeLimit: next })}
        />
        <SaveButton isReader={isReader} />
      </div>
    </div>
  );
}

/** How far a download is. */
function DownloadButton() {
  const now = currentDownload.value;
  if (now === undefined) return null;
  return (
    <Button icon="stop" class="number" title="Cancel the download" onClick={now.cancel}>
      {formatBytes(now.bytes)} saved …
    </Button>
  );
}

function SaveButton({ isReader }: { readonly isReader: boolean }) {
  const { saved, text } = currentTab.value;
  const isSaved = saved.value !== undefined && saved.value.sql === text.value;
  if (isReader) return null;
  return (
    <>
      <Button
        icon="star"
        title={saved.value === undefined ? 'Save it for all keys of the organization' : `Save “${saved.value.name}”`}
        isDisabled={isSaved || text.value.trim() === ''}
        onClick={() => void save(false)}
      >
        Save
      </Button>
      {saved.value !== undefined && (
        <Button kind="quiet" onClick={() => void save(true)}>
          Save as …
        </Button>
      )}
    </>
  );
}

async function save(asAnother: boolean): Promise<void> {
  try {
    const { beginSaving } = await import('./library/save-tab.ts');
    await beginSaving(currentTab.peek(), asAnother);
  } catch (error) {
    sayError(error, () => void save(asAnother));
  }
}

async function downloadHere(form: 'csv' | 'json'): Promise<void> {
  try {
    const { downloadStatementHere } = await import('./results/download.ts');
    await downloadStatementHere(form);
  } catch (error) {
    sayError(error, () => void downloadHere(form));
  }
}
