import { useEffect, useState } from 'preact/hooks';
import { formatCount } from '../../../format.ts';
import { Button } from '../../../parts/button.tsx';
import { KEPT_ROWS_MAX, type Run } from '../run/run-request-and-result.ts';

const TICK_MS = 100;

/** How long it has run, and how many rows have come. */
export function Running({ run: { startedAt, results, cancel } }: { readonly run: Run }) {
  const [now, setNow] = useState(performance.now());
  useEffect(() => {
    const ticking = setInterval(() => setNow(performance.now()), TICK_MS);
    return () => clearInterval(ticking);
  }, []);
  const received = results[0]?.received ?? 0;
  return (
    <div class="sql-status">
      <span class="sql-running" />
      <span role="status">Running …</span>
      <span class="number">{Math.max(0, (now - startedAt) / 1_000).toFixed(1)} s</span>
      {received > 0 && <span class="number">{formatCount(received)} rows</span>}
      {received > KEPT_ROWS_MAX && <span class="muted">It may change data, so it runs to its end; further rows are not kept.</span>}
      <Button icon="stop" onClick={cancel}>
        Cancel
      </Button>
    </div>
  );
}
