// An official resource server that settles through the facilitator at FACILITATOR_URL. For /work it verifies the payment,
// does the work and settles; for /upfront it settles first, without a verification. Prints its address when it is ready,
// and exits when its standard input is closed.
import { serve } from "@hono/node-server";
import { HTTPFacilitatorClient, x402ResourceServer } from "@x402/core/server";
import { ExactEvmScheme } from "@x402/evm/exact/server";
import { paymentMiddleware } from "@x402/hono";
import { Hono } from "hono";

const { FACILITATOR_URL, CHAIN_ID, ASSET, PAY_TO } = process.env;
const network = `eip155:${CHAIN_ID}`;
const terms = (extra) => ({
  accepts: {
    scheme: "exact", network, payTo: PAY_TO,
    price: { amount: "1000000000000000", asset: ASSET, extra: { assetTransferMethod: "permit2", ...extra } },
  },
});
const facilitator = new HTTPFacilitatorClient({ url: FACILITATOR_URL });
const server = new x402ResourceServer(facilitator).register(network, new ExactEvmScheme());

const app = new Hono();
app.use(paymentMiddleware({ "GET /work": terms(), "GET /upfront": terms({ paymentFlow: "upfront" }) }, server));
app.get("/work", (c) => c.json({ work: "done" }));
app.get("/upfront", (c) => c.json({ work: "done" }));
serve({ fetch: app.fetch, hostname: "127.0.0.1", port: 0 }, ({ port }) => console.log(`http://127.0.0.1:${port}`));
process.stdin.on("end", () => process.exit()).resume();
