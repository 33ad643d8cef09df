import { call } from '../../api/client.ts';

/** `POST /api/auth/signup` */
export interface SignedUp {
  readonly apiKey: string;
  readonly organizationId: string;
  readonly orgName: string;
  readonly connectionString: string;
}

export function signUp(orgName: string, email: string, invite: string): Promise<SignedUp> {
  return call('POST', 'api/auth/signup', { body: { orgName, email, ...(invite === '' ? {} : { invite }) } });
}
