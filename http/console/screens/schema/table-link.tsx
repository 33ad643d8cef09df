import { hrefOf } from '../../shell/route.ts';

/** A link to another table, `schema.name`. */
export function TableLink({ schema, name, address }: { readonly schema: string; readonly name: string; readonly address: string }) {
  return (
    <a href={hrefOf('schema', address)}>
      {schema !== 'public' && `${schema}.`}
      {name}
    </a>
  );
}
