// Lets any x402 client that wraps fetch buy from Boxoffice: put it beneath the
// wrapper. It remembers what a 402 offered, and when the wrapper sends the
// payment it adds what x402 does not have: the same wallet's approval of exactly
// that quote and that payment.
import { createHash } from "node:crypto";
import { decodePaymentSignatureHeader } from "@x402/core/http";
import type { ClientEvmSigner } from "@x402/evm";
import canonicalize from "canonicalize";

type TypedData = Parameters<ClientEvmSigner["signTypedData"]>[0];

/** What a 402 of the submit route offers, as far as it is approved. */
export interface Offer {
  resourceUrl: string;
  requesterScopeHash: string;
  quote: { id: string; quoteHash: string; action: string; expiresAt: number; payment: { asset: string; amount: string; payTo: string } };
  input: unknown; // what the service will do
}

/**
 * Returns a fetch that approves what is paid through it.
 *
 * @param template payment.quoteApproval of GET /requests/capabilities: domain, types, primaryType
 * @param inspect is shown every offer before it is approved, and throws to refuse it
 */
export function approving(
  send: typeof fetch, wallet: ClientEvmSigner, template: Omit<TypedData, "message">, inspect: (offer: Offer) => void,
): typeof fetch {
  const offers = new Map<string, Offer>();
  return async (input, init) => {
    const request = new Request(input, init);
    const payment = request.headers.get("PAYMENT-SIGNATURE");
    if (!payment) {
      const answer = await send(request);
      if (answer.status === 402) offers.set(request.url, await answer.clone().json());
      return answer;
    }
    const offer = offers.get(request.url);
    if (!offer) throw new Error(`nothing was offered at ${request.url}`);
    inspect(offer);
    const payload = decodePaymentSignatureHeader(payment);
    const { id, quoteHash, action, expiresAt, payment: { asset, amount, payTo } } = offer.quote;
    const accepted = payload.accepted;
    if (asset !== accepted.asset || amount !== accepted.amount || payTo !== accepted.payTo) {
      throw new Error("the quote and the payment differ");
    }
    const quoteSignature = await wallet.signTypedData({
      ...template,
      message: {
        resource: offer.resourceUrl,
        requesterScopeHash: `0x${offer.requesterScopeHash}`,
        quoteId: id,
        quoteHash: `0x${quoteHash}`,
        paymentHash: "0x" + createHash("sha256").update(canonicalize(payload)!).digest("hex"),
        action, asset, amount: BigInt(amount), payTo,
        expiresAt: BigInt(expiresAt),
      },
    });
    request.headers.set("content-type", "application/json");
    return send(new Request(request, { body: JSON.stringify({ quoteSignature }) }));
  };
}
