import { Notice } from '../parts/notice.tsx';
import { me, type Scope } from './session.ts';

/** Why a screen shows nothing. @param what what the key may not do */
export function MissingScopeNotice({ scopes, what }: { readonly scopes: readonly Scope[]; readonly what: string }) {
  const whose = me.value;
  if (whose === undefined) return null;
  return (
    <Notice tone="info">
      <p class="notice-title">
        This key may not {what}: its scope is {whose.key.scope}.
      </p>
      <p>
        A key of {whose.orgName} with the scope {scopes.join(' or ')} may. Whoever has one can sign in with it here.
      </p>
    </Notice>
  );
}
