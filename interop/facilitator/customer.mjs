// An official client: pays for RESOURCE with @x402/fetch and sends the same payment AGAIN more times, with AT_ONCE at the
// same time, otherwise one after the other. Prints all responses as JSON.
import { x402Client } from "@x402/core/client";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { decodePaymentResponseHeader, wrapFetchWithPayment } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";

const { RESOURCE, PRIVATE_KEY, ASSET, AGAIN, AT_ONCE } = process.env;
const client = new x402Client().register("eip155:*", new ExactEvmScheme(privateKeyToAccount(PRIVATE_KEY)));
client.setSpendControls({ allowedAssets: [{ network: "eip155:*", asset: ASSET, maxAmountPerPayment: "1000000000000000" }] });
let paid;
const copies = [];
const watched = async (request) => {
  if (request.headers.has("PAYMENT-SIGNATURE")) {
    paid = request.clone();
    if (AT_ONCE) copies.push(...Array.from({ length: Number(AGAIN) }, () => fetch(paid.clone())));
  }
  return fetch(request);
};
const told = async (answer) => {
  const header = answer.headers.get("PAYMENT-RESPONSE");
  const required = answer.headers.get("PAYMENT-REQUIRED");
  return {
    status: answer.status,
    body: await answer.text(),
    payment: header && decodePaymentResponseHeader(header),
    error: required && JSON.parse(atob(required)).error,
  };
};
const answers = [await told(await wrapFetchWithPayment(watched, client)(RESOURCE))];
if (!AT_ONCE) for (let n = 0; n < Number(AGAIN); n++) copies.push(await fetch(paid.clone()));
for (const copy of copies) answers.push(await told(await copy));
console.log(JSON.stringify(answers));
