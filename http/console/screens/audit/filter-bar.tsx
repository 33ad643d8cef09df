import { useEffect, useState } from 'preact/hooks';
import { useLoad } from '../../api/use-load.ts';
import { Button } from '../../parts/button.tsx';
import { Choice, Field } from '../../parts/fields.tsx';
import { auditActions } from './audit-calls.ts';
import { type Filters, filters, NO_FILTERS, PERIODS, setFilters } from './filters-and-cursors.ts';

const OUTCOMES = [
  ['', 'any'],
  ['ok', 'ok'],
  ['error', 'error'],
] as const satisfies readonly (readonly [Filters['outcome'], string])[];

/** Choices filter at once, texts when they are sent: each search is a call, and stands in the log. */
export function FilterBar() {
  const { data: actions = [] } = useLoad(auditActions);
  const now = filters.value;
  const [typed, setTyped] = useState(now);
  useEffect(() => setTyped(now), [now]);
  const names = actions.includes(now.action) || now.action === '' ? actions : [now.action, ...actions];
  return (
    <form
      class="audit-filters"
      onSubmit={(event) => {
        event.preventDefault();
        setFilters({ requestId: typed.requestId, since: typed.since, until: typed.until });
      }}
    >
      <Choice
        label="Action"
        value={now.action}
        options={[['', 'any'], ...names.map((name) => [name, name] as const)]}
        onChange={(action) => setFilters({ action })}
      />
      <Choice label="Outcome" value={now.outcome} options={OUTCOMES} onChange={(outcome) => setFilters({ outcome })} />
      <Choice label="Time" value={now.period} options={PERIODS} onChange={(period) => setFilters({ period })} />
      {now.period === 'between' && (
        <>
          <Field label="From" type="datetime-local" value={typed.since} onInput={(since) => setTyped({ ...typed, since })} />
          <Field label="Until" type="datetime-local" value={typed.until} onInput={(until) => setTyped({ ...typed, until })} />
        </>
      )}
      <Field
        class="request-id"
        label="Request id"
        type="search"
        value={typed.requestId}
        onInput={(requestId) => setTyped({ ...typed, requestId })}
        isMono
      />
      <Button type="submit" icon="search">
        Find
      </Button>
      {now !== NO_FILTERS && (
        <Button kind="quiet" onClick={() => setFilters(NO_FILTERS)}>
          Clear
        </Button>
      )}
    </form>
  );
}
