// Buys one job from Boxoffice: the official x402 client pays, and the same
// wallet approves the quote. Prints the order's status; exits 0 if admitted.
import { createHash, randomBytes, randomUUID } from "node:crypto";
import { pathToFileURL } from "node:url";
import { x402Client, x402HTTPClient } from "@x402/core/client";
import type { ClientEvmSigner } from "@x402/evm";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import canonicalize from "canonicalize";
import { privateKeyToAccount } from "viem/accounts";

function env(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

export async function buy(wallet: ClientEvmSigner) {
  const service = env("BOXOFFICE_URL");
  // Your request token: keep it. Anyone who has it can read your orders and fetch your work.
  const token = process.env.BOXOFFICE_TOKEN ?? randomBytes(32).toString("hex");
  const ask = (path: string, body?: object, headers = {}) =>
    fetch(service + path, {
      method: body ? "POST" : "GET",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json", ...headers },
      body: body && JSON.stringify(body),
    });
  const read = async (answer: Response, ...expected: number[]) => {
    if (!expected.includes(answer.status)) throw new Error(`${answer.status} ${await answer.text()}`);
    return answer.json();
  };

  // What this program may spend is set here, not by the service.
  const client = new x402Client().register("eip155:*", new ExactEvmScheme(wallet));
  client.setSpendControls({
    allowedAssets: [{ network: "eip155:*", asset: env("ASSET"), maxAmountPerPayment: env("MAX_AMOUNT") }],
  });
  const http = new x402HTTPClient(client);

  const { payment: how } = await read(await ask("/requests/capabilities"), 200);
  const input = { objective: "Name three uses of a lighthouse" };
  const { order } = await read(await ask("/requests/quote", { action: "job.open", input, requestKey: randomUUID() }), 200, 201);

  const offer = await ask(`/requests/${order.id}/submit`, {});
  const { quote, resourceUrl, requesterScopeHash, input: prepared } = await read(offer, 402);
  console.error("buying", quote.action, prepared, "for", quote.payment.amount); // check this before you sign

  const payload = await client.createPaymentPayload(http.getPaymentRequiredResponse((name) => offer.headers.get(name)));
  const { asset, amount, payTo } = quote.payment;
  if (asset !== payload.accepted.asset || amount !== payload.accepted.amount || payTo !== payload.accepted.payTo) {
    throw new Error("the quote and the payment differ");
  }
  const quoteSignature = await wallet.signTypedData({
    ...how.quoteApproval, // domain, types, primaryType
    message: {
      resource: resourceUrl,
      requesterScopeHash: `0x${requesterScopeHash}`,
      quoteId: quote.id,
      quoteHash: `0x${quote.quoteHash}`,
      paymentHash: "0x" + createHash("sha256").update(canonicalize(payload)!).digest("hex"),
      action: quote.action,
      asset, amount: BigInt(amount), payTo,
      expiresAt: BigInt(quote.expiresAt),
    },
  });

  // Sending the same two signatures again is always safe.
  const paid = await ask(`/requests/${order.id}/submit`, { quoteSignature }, http.encodePaymentSignatureHeader(payload));
  let status = await read(paid, 200, 202);
  while (["payment_pending", "admission_pending"].includes(status.status)) {
    await new Promise((wake) => setTimeout(wake, 500));
    status = await read(await ask(`/requests/${order.id}`), 200);
  }
  console.log(JSON.stringify(status));
  process.exitCode = status.status === "admitted" ? 0 : 1;
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  await buy(privateKeyToAccount(env("BOXOFFICE_PRIVATE_KEY") as `0x${string}`));
}
