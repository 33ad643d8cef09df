import { useEffect, useState } from 'preact/hooks';
import { callText } from '../../../api/client.ts';
import { rowsOf } from '../../../api/reply-rows.ts';
import { formatCount } from '../../../format.ts';
import { Button } from '../../../parts/button.tsx';
import { sayError } from '../../../shell/toasts.tsx';
import { countSql } from '../sql/browse-sql.ts';
import type { OpenTable } from './open-table.ts';

/** How many rows were read, and how many there are: about, or exactly for whoever asks. */
export function RowCount({ open }: { readonly open: OpenTable }) {
  const { isComplete, isLoading } = open.load.value;
  const filters = open.filters.value;
  const [exact, setExact] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  open.version.value;
  useEffect(() => setExact(undefined), [open, filters]);
  const count = async () => {
    setBusy(true);
    try {
      const body = { ...countSql(open.browse).toStatement(), rowMode: 'array', readOnly: true };
      const reply = await callText('POST', 'api/query', { body, isSafe: true });
      setExact(String(JSON.parse(rowsOf(reply)[0]?.[0] ?? '""')));
    } catch (error) {
      sayError(error, () => void count());
    } finally {
      setBusy(false);
    }
  };
  const read = formatCount(open.rows.length);
  if (isComplete) return <span class="muted number">{open.rows.length === 1 ? '1 row' : `${read} rows`}</span>;
  const { rowEstimate } = open.table;
  const about = filters.length === 0 && rowEstimate !== null ? ` of ≈ ${formatCount(Math.max(rowEstimate, open.rows.length))}` : '';
  return (
    <span class="tables-count muted number" aria-live="polite">
      {read} read{exact === undefined ? about : ` of ${formatCount(Number(exact))}`}
      {exact === undefined && (
        <Button kind="quiet" isBusy={isBusy} onClick={() => void count()}>
          Count exactly
        </Button>
      )}
      {isLoading && ' · reading …'}
    </span>
  );
}
