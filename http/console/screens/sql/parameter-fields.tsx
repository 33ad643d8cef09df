import { useComputed } from '@preact/signals';
import { useId } from 'preact/hooks';
import { Checkbox } from '../../parts/fields.tsx';
import { type Parameter, parameterCountIn } from './run-request.ts';
import type { QueryTab } from './sql-screen-state.ts';

/** A field for each of `$1`, `$2`, … in the text. */
export function Parameters({ tab }: { readonly tab: QueryTab }) {
  const count = useComputed(() => parameterCountIn(tab.text.value)).value;
  if (count === 0) return null;
  return (
    <fieldset class="sql-parameters">
      <legend class="unseen">Parameters</legend>
      {Array.from({ length: count }, (_, index) => (
        <ParameterField key={index} tab={tab} index={index} />
      ))}
    </fieldset>
  );
}

function ParameterField({ tab, index }: { readonly tab: QueryTab; readonly index: number }) {
  const id = useId();
  const value = parameterAt(tab, index);
  return (
    <div class="sql-parameter">
      <label for={id} class="mono">
        ${index + 1}
      </label>
      <input
        id={id}
        type="text"
        class="mono"
        value={value ?? ''}
        placeholder={value === null ? 'NULL' : 'empty text'}
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        onInput={({ currentTarget }) => set(tab, index, currentTarget.value)}
      />
      <Checkbox label="NULL" isChecked={value === null} onChange={(isNull) => set(tab, index, isNull ? null : '')} />
    </div>
  );
}

/** Nothing typed is NULL, as the checkbox says. */
function parameterAt(tab: QueryTab, index: number): Parameter {
  return tab.params.value[index] ?? null;
}

function set(tab: QueryTab, index: number, value: Parameter): void {
  const before = tab.params.peek();
  tab.params.value = Array.from({ length: Math.max(before.length, index + 1) }, (_, at) => (at === index ? value : (before[at] ?? null)));
}
