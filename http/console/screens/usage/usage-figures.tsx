import type { ComponentChildren } from 'preact';
import { formatBytes, formatCount } from '../../format.ts';
import type { Usage } from './usage-calls.ts';

/** What the organization has and uses, in numbers. */
export function Figures({ usage: { database, sessions, totals, period } }: { readonly usage: Usage }) {
  const { statements, errors, rows, bytesIn, bytesOut } = totals;
  const { limits } = sessions;
  const span = period === '24h' ? 'in 24 hours' : 'in 90 days';
  return (
    <dl class="usage-figures">
      <Figure term="Database" value={formatBytes(database.bytes)} note="half a minute old at most" />
      <Figure term="Statements" value={formatCount(statements)} note={span} />
      <Figure term="Errors" value={formatCount(errors)} note={errorNote(errors, statements)} />
      <Figure term="Rows" value={formatCount(rows)} note="returned or affected" />
      <Figure term="Bytes" value={formatBytes(bytesIn + bytesOut)} note={`${formatBytes(bytesIn)} in, ${formatBytes(bytesOut)} out`} />
      <Figure
        term="Connections now"
        value={`${formatCount(sessions.wire)} of ${formatCount(limits.wire)}`}
        note={<Meter value={sessions.wire} max={limits.wire} />}
      />
      <Figure
        term="HTTP requests now"
        value={`${formatCount(sessions.http)} of ${formatCount(limits.http)}`}
        note={<Meter value={sessions.http} max={limits.http} />}
      />
      <Figure term="Backends" value={`at most ${formatCount(limits.backends)}`} note="of PostgreSQL, at once" />
    </dl>
  );
}

function errorNote(errors: number, statements: number): string {
  if (errors === 0) return 'no request failed';
  const perThousand = Math.round((errors / Math.max(statements, errors)) * 1_000);
  return perThousand === 0 ? 'fewer than 1 of 1,000 statements' : `${formatCount(perThousand)} of 1,000 statements`;
}

function Figure({ term, value, note }: { readonly term: string; readonly value: string; readonly note: ComponentChildren }) {
  return (
    <div>
      <dt>{term}</dt>
      <dd>
        <span class="usage-value">{value}</span>
        <span class="muted">{note}</span>
      </dd>
    </div>
  );
}

/** From this part on, a limit is near. */
const NEAR = 0.8;

/** The figures stand beside it. */
function Meter({ value, max }: { readonly value: number; readonly max: number }) {
  const part = max === 0 ? 0 : Math.min(value / max, 1);
  return (
    <span class={part >= NEAR ? 'usage-meter near' : 'usage-meter'} aria-hidden="true">
      <span style={{ width: `${part * 100}%` }} />
    </span>
  );
}
