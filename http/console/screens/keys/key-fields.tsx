import type { ComponentChildren } from 'preact';
import { Choice, Field } from '../../parts/fields.tsx';
import { type Expiry, instantOf, LIFETIMES } from './expiry.ts';
import type { KeyDetails } from './key-calls.ts';

/** What stands in the fields. */
export interface KeyDraft {
  readonly name: string;
  readonly expiry: Expiry;
  readonly networks: string;
}

export interface KeyFieldsProps {
  readonly draft: KeyDraft;
  readonly onChange: (draft: KeyDraft) => void;
  /** What stands behind the name. */
  readonly children?: ComponentChildren;
}

export function KeyFields({ draft, onChange, children }: KeyFieldsProps) {
  const { name, expiry, networks } = draft;
  return (
    <>
      <Field label="Name" value={name} onInput={(next) => onChange({ ...draft, name: next })} placeholder="nightly job" isRequired />
      {children}
      <div class="expiry">
        <Choice
          label="Expires"
          value={expiry.lifetime}
          options={LIFETIMES}
          onChange={(lifetime) => onChange({ ...draft, expiry: { ...expiry, lifetime } })}
        />
        {expiry.lifetime === 'until' && (
          <Field
            label="Time (of this browser)"
            type="datetime-local"
            value={expiry.until}
            onInput={(until) => onChange({ ...draft, expiry: { ...expiry, until } })}
            isRequired
          />
        )}
      </div>
      <Field
        label="Networks"
        value={networks}
        onInput={(next) => onChange({ ...draft, networks: next })}
        rows={3}
        placeholder={'203.0.113.0/24\n2001:db8::/32'}
        hint="The only addresses that it may be used from, one a line. Empty: from anywhere."
        isMono
      />
    </>
  );
}

/** @throws Error that says what is wrong in the fields */
export function detailsOf({ name, expiry, networks }: KeyDraft): KeyDetails {
  const expiresAt = instantOf(expiry);
  if (expiresAt === undefined) throw new Error('the time of the expiry is missing');
  const lines = networks.split(/[\s,]+/).filter((line) => line !== '');
  return { name: name.trim(), expiresAt, networks: lines.length === 0 ? null : lines };
}
