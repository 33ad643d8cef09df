import { useEffect, useRef, useState } from 'preact/hooks';
import { Button } from '../../../parts/button.tsx';
import { type Filter, isOperator, needsText, OPERATORS } from '../sql/filter-conditions.ts';
import type { OpenTable } from './open-table.ts';

/** The filters, and one more that is being written. A filter counts when it is entered, not while it is typed. */
export function FilterBar({ open }: { readonly open: OpenTable }) {
  const filters = open.filters.value;
  const [draft, setDraft] = useState<Filter>();
  const apply = (next: readonly Filter[]) => void open.show({ filters: next });
  const first = open.columns[0]?.name ?? '';
  return (
    <div class="tables-filters">
      {filters.map((filter, index) => (
        <span class="tables-filter" key={`${index} ${filter.column}`}>
          <button
            type="button"
            title="Change this filter"
            onClick={() => {
              setDraft(filter);
              apply(filters.toSpliced(index, 1));
            }}
          >
            <strong>{filter.column}</strong> {OPERATORS[filter.operator]} {needsText(filter.operator) && <code>{shown(filter.text)}</code>}
          </button>
          <Button
            kind="quiet"
            icon="close"
            label={`Remove the filter of ${filter.column}`}
            onClick={() => apply(filters.toSpliced(index, 1))}
          />
        </span>
      ))}
      {draft === undefined ? (
        <Button kind="quiet" icon="filter" onClick={() => setDraft({ column: first, operator: 'equal', text: '' })}>
          Filter
        </Button>
      ) : (
        <FilterForm
          columns={open.columns.map(({ name }) => name)}
          filter={draft}
          onChange={setDraft}
          onClose={() => setDraft(undefined)}
          onApply={() => {
            setDraft(undefined);
            apply([...filters, draft]);
          }}
        />
      )}
      {filters.length > 1 && (
        <Button kind="quiet" onClick={() => apply([])}>
          Remove all
        </Button>
      )}
    </div>
  );
}

const SHOWN_MAX_CHARACTERS = 40;

function shown(text: string): string {
  return text.length > SHOWN_MAX_CHARACTERS ? `${text.slice(0, SHOWN_MAX_CHARACTERS)}…` : text || "''";
}

interface FilterFormProps {
  readonly columns: readonly string[];
  readonly filter: Filter;
  readonly onChange: (filter: Filter) => void;
  readonly onApply: () => void;
  readonly onClose: () => void;
}

function FilterForm({ columns, filter, onChange, onApply, onClose }: FilterFormProps) {
  const first = useRef<HTMLSelectElement>(null);
  useEffect(() => first.current?.focus(), []);
  return (
    <form
      class="tables-filter-form"
      onSubmit={(event) => {
        event.preventDefault();
        onApply();
      }}
      onKeyDown={(event) => event.key === 'Escape' && onClose()}
    >
      <select
        aria-label="Column"
        value={filter.column}
        ref={first}
        onChange={({ currentTarget }) => onChange({ ...filter, column: currentTarget.value })}
      >
        {columns.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
      <select
        aria-label="Comparison"
        value={filter.operator}
        onChange={({ currentTarget: { value } }) => isOperator(value) && onChange({ ...filter, operator: value })}
      >
        {Object.entries(OPERATORS).map(([operator, title]) => (
          <option key={operator} value={operator}>
            {title}
          </option>
        ))}
      </select>
      {needsText(filter.operator) && (
        <input
          type="text"
          class="mono"
          aria-label="Value"
          placeholder="value"
          autocomplete="off"
          spellcheck={false}
          value={filter.text}
          onInput={({ currentTarget }) => onChange({ ...filter, text: currentTarget.value })}
        />
      )}
      <Button type="submit" icon="check">
        Apply
      </Button>
      <Button kind="quiet" icon="close" label="No filter" onClick={onClose} />
    </form>
  );
}
