/** `require` for both adapters: a decision, or the error that its refusal is. */
import type { AuthzResource, Caller, Decision, IamPort, RequestMeta } from '#core/iam/port.ts';
import { problem } from '#core/kernel/errors.ts';

const subject = (resource: AuthzResource): string => `${resource.type}/${resource.id}`;

/** authorize, and the two errors that a refusal can be. A held-back action leaves a request for the person behind. */
export async function requireVia(
  via: { authorize: IamPort['authorize']; confirm: IamPort['requestConfirmation'] },
  caller: Caller,
  action: string,
  resource: AuthzResource,
  meta: RequestMeta,
): Promise<Decision> {
  const decision = await via.authorize(caller, action, resource, meta);
  if (decision.allowed) return decision;
  if (decision.reason !== 'CONFIRMATION_REQUIRED') {
    throw problem('PERMISSION_DENIED', `your policies do not allow ${action}`, { action, resource: subject(resource) });
  }
  const { id } = await via.confirm(caller, action, resource, `${action} on ${subject(resource)}`);
  throw problem('CONFIRMATION_REQUIRED', `a person must confirm ${action} first`, { action, confirmationId: id });
}
