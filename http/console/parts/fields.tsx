import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';

export interface FieldProps {
  readonly label: string;
  readonly value: string;
  readonly onInput: (value: string) => void;
  /** Stands below it. */
  readonly hint?: ComponentChildren;
  /** What is wrong with the value. */
  readonly error?: string | undefined;
  readonly type?: 'text' | 'password' | 'email' | 'search' | 'number' | 'datetime-local';
  readonly placeholder?: string;
  readonly isRequired?: boolean;
  readonly isMono?: boolean;
  /** What browsers may fill in; by default nothing. */
  readonly autocomplete?: 'off' | 'organization' | 'email' | 'current-password';
  readonly rows?: number;
  readonly class?: string;
  /** Shown only to those who cannot see what it is about. */
  readonly hideLabel?: boolean;
  /** Offered while something is typed. */
  readonly suggestions?: readonly string[];
}

/** A text field with its label; of several lines with `rows`. */
export function Field(props: FieldProps) {
  const { label, value, onInput, hint, error, type = 'text', rows, autocomplete = 'off' } = props;
  const id = useId();
  const common = {
    id,
    value,
    placeholder: props.placeholder,
    required: props.isRequired,
    class: props.isMono ? 'mono' : undefined,
    autocomplete,
    spellcheck: false,
    autocapitalize: 'off' as const,
    'aria-invalid': error !== undefined || undefined,
    'aria-describedby': hint === undefined && error === undefined ? undefined : `${id}-hint`,
  };
  return (
    <div class={`field ${props.class ?? ''}`}>
      <label for={id} class={props.hideLabel ? 'unseen' : undefined}>
        {label}
      </label>
      {rows === undefined ? (
        <input
          {...common}
          list={props.suggestions && `${id}-list`}
          type={type as 'text'}
          onInput={({ currentTarget }) => onInput(currentTarget.value)}
        />
      ) : (
        <textarea {...common} rows={rows} onInput={({ currentTarget }) => onInput(currentTarget.value)} />
      )}
      {props.suggestions !== undefined && (
        <datalist id={`${id}-list`}>
          {props.suggestions.map((text) => (
            <option key={text} value={text} />
          ))}
        </datalist>
      )}
      {(error !== undefined || hint !== undefined) && (
        <p id={`${id}-hint`} class={error === undefined ? 'muted' : 'bad'}>
          {error ?? hint}
        </p>
      )}
    </div>
  );
}

export interface CheckboxProps {
  readonly label: ComponentChildren;
  readonly isChecked: boolean;
  readonly onChange: (isChecked: boolean) => void;
  readonly isDisabled?: boolean;
}

export function Checkbox({ label, isChecked, onChange, isDisabled = false }: CheckboxProps) {
  return (
    <label class="checkbox">
      <input type="checkbox" checked={isChecked} disabled={isDisabled} onChange={({ currentTarget }) => onChange(currentTarget.checked)} />
      <span>{label}</span>
    </label>
  );
}

export interface ChoiceProps<T extends string> {
  readonly label: string;
  readonly value: T;
  readonly options: readonly (readonly [value: T, title: string])[];
  readonly onChange: (value: T) => void;
  /** Shown only to those who cannot see what it is about. */
  readonly hideLabel?: boolean;
}

/** One of a few. */
export function Choice<T extends string>({ label, value, options, onChange, hideLabel = false }: ChoiceProps<T>) {
  const id = useId();
  return (
    <div class={hideLabel ? 'field inline' : 'field'}>
      <label for={id} class={hideLabel ? 'unseen' : undefined}>
        {label}
      </label>
      <select id={id} value={value} onChange={({ currentTarget }) => onChange(currentTarget.value as T)}>
        {options.map(([one, title]) => (
          <option key={one} value={one}>
            {title}
          </option>
        ))}
      </select>
    </div>
  );
}
