import type { ComponentChildren } from 'preact';
import { hrefOf } from '../../../shell/route.ts';

export interface ObjectPageProps {
  /** Undefined: it is in none, or all are in the same. */
  readonly schemaName?: string;
  readonly name: string;
  readonly kind: string;
  readonly comment?: string | null;
  /** Sizes, counts, settings. */
  readonly facts?: readonly ComponentChildren[];
  readonly actions?: ComponentChildren;
  readonly children?: ComponentChildren;
}

/** What the page of every object begins with. */
export function ObjectPage({ schemaName, name, kind, comment = null, facts = [], actions, children }: ObjectPageProps) {
  return (
    <article class="schema-object">
      <a class="to-tree" href={hrefOf('schema')}>
        All objects
      </a>
      <header>
        <div>
          <h2>
            {schemaName !== undefined && <span class="muted">{schemaName}.</span>}
            {name}
          </h2>
          <p class="muted facts">
            <span class="tag">{kind}</span>
            {facts.map((fact, index) => (
              <span key={index}>{fact}</span>
            ))}
          </p>
        </div>
        {actions !== undefined && <div class="actions">{actions}</div>}
      </header>
      {comment !== null && <p class="comment">{comment}</p>}
      {children}
    </article>
  );
}
