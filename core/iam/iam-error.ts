/**
 * What the identity service answers when it refuses to work at all (a denial is an answer, not an error): the codes of
 * its HTTP interface with their status. They stay between the engine, its HTTP face and the remote adapter; the product's
 * own callers see only the codes of core/kernel/errors.ts.
 */
export const IAM_STATUS = {
  INVALID_INPUT: 400,
  INVALID_POLICY: 400,
  INVALID_ACTION: 400,
  INVALID_RESOURCE_TYPE: 400,
  INVALID_REQUEST: 400,
  UNAUTHENTICATED: 401,
  ACCESS_DENIED: 403,
  CSRF_REJECTED: 403,
  TENANT_INACTIVE: 403,
  RESOURCE_MISMATCH: 403,
  DELEGATION_INACTIVE: 403,
  DELEGATION_NOT_ALLOWED: 403,
  NOT_FOUND: 404,
  METHOD_NOT_ALLOWED: 405,
  CONFLICT: 409,
  VERSION_CONFLICT: 409,
  RESOURCE_IN_USE: 409,
  LIMIT_EXCEEDED: 409,
  INVALID_IDENTITY: 409,
  INVALID_TRANSITION: 409,
  PAYLOAD_TOO_LARGE: 413,
  RATE_LIMITED: 429,
  INTERNAL_ERROR: 500,
  STORAGE_BUSY: 503,
} as const;

export type IamErrorCode = keyof typeof IAM_STATUS;

export class IamError extends Error {
  readonly code: IamErrorCode;
  readonly retryAfterMs: number | undefined;
  constructor(code: IamErrorCode, message: string, retryAfterMs?: number) {
    super(message);
    this.name = 'IamError';
    this.code = code;
    this.retryAfterMs = retryAfterMs;
  }
  get status(): number {
    return IAM_STATUS[this.code];
  }
}
