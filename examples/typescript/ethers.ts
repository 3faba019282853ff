// The same purchase by an ethers wallet, which wants types without EIP712Domain.
import { Wallet } from "ethers";
import { buy } from "./buy.js";

const wallet = new Wallet(process.env.BOXOFFICE_PRIVATE_KEY!);
await buy({
  address: wallet.address as `0x${string}`,
  async signTypedData({ domain, types, message }) {
    const { EIP712Domain, ...structs } = types as Record<string, { name: string; type: string }[]>;
    return (await wallet.signTypedData(domain, structs, message)) as `0x${string}`;
  },
});
