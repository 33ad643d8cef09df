import { signal } from '@preact/signals';
import { formatCount } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { say, sayError } from '../../shell/toasts.tsx';
import { exportAudit } from './export.ts';
import { filters, searchOf } from './filters-and-cursors.ts';

/** It goes on while another screen is shown. */
const running = signal<{ readonly entries: number; readonly cancel: () => void } | undefined>(undefined);

export function ExportButton() {
  const now = running.value;
  if (now === undefined) {
    return (
      <Button icon="download" title="All entries that the filters find, as NDJSON" onClick={() => void start()}>
        Export
      </Button>
    );
  }
  return (
    <Button icon="stop" title="Cancel the export" onClick={now.cancel}>
      {formatCount(now.entries)} entries …
    </Button>
  );
}

async function start(): Promise<void> {
  const stopped = new AbortController();
  const show = (entries: number) => {
    running.value = { entries, cancel: () => stopped.abort() };
  };
  show(0);
  try {
    const exported = await exportAudit({ filters: searchOf(filters.value), signal: stopped.signal, onProgress: show });
    if (exported !== undefined) say(sentenceOf(exported));
  } catch (error) {
    sayError(error, () => void start());
  } finally {
    running.value = undefined;
  }
}

function sentenceOf({ entries, unreadable }: { readonly entries: number; readonly unreadable: number }): string {
  const lost = unreadable === 0 ? '' : ` ${formatCount(unreadable)} more cannot be read: Verify tells where.`;
  return `${formatCount(entries)} entries are exported.${lost}`;
}
