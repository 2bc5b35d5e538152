import type { CallOptions, Caller } from './call.js';
import type { CreateExport, Export } from './types.js';

/** Exports give out tokens in bulk, encrypted to a recipient. */
export class Exports {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Requests an export. It takes token:read with reveal on every token in it, which is decided when it is fetched. */
  create(request: CreateExport, options?: CallOptions): Promise<Export> {
    return this.#caller.call('createExport', { body: request }, options);
  }

  /** Returns an export, to the application that requested it and to callers with tenant:update. */
  get(id: string, options?: CallOptions): Promise<Export> {
    return this.#caller.call('getExport', { ids: [id] }, options);
  }

  /** Approves an export of another application; the request names what is approved. It takes tenant:update. */
  approve(id: string, request: CreateExport, options?: CallOptions): Promise<Export> {
    return this.#caller.call('approveExport', { ids: [id], body: request }, options);
  }

  /** Returns the file of an export as it arrives, encrypted to the recipient. It is tried once. A file without its end was cut off. */
  content(id: string, options?: CallOptions): Promise<ReadableStream<Uint8Array>> {
    return this.#caller.stream('getExportContent', [id], options);
  }
}
