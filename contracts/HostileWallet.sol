// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title A contract wallet whose isValidSignature misbehaves on demand, for tests of what a service has to survive.
/// @notice Anybody may choose how it answers Permit2 and how it answers other callers. It checks no signature.
contract HostileWallet {
    enum Answer {
        Accept,
        Refuse, // another value than the magic one
        Revert,
        BurnGas, // all the gas of the call
        InvalidOpcode,
        Nothing, // 0 bytes
        Short, // the magic value alone, 4 bytes
        Long, // the magic value in 64 bytes
        Dirty, // the magic value with a further bit set in its word
        Flood, // as many bytes as the gas pays for
        AcceptUnpaid // accept if the gas price is 0, which is so in a simulation and never in a transaction
    }

    address private constant PERMIT2 = 0x000000000022D473030F116dDEE9F6B43aC78BA3;
    bytes32 private constant ACCEPTED = hex"1626ba7e";

    Answer private _toPermit2;
    Answer private _toOthers;

    function answer(Answer toPermit2, Answer toOthers) external {
        (_toPermit2, _toOthers) = (toPermit2, toOthers);
    }

    function execute(address target, uint256 value, bytes calldata data) external returns (bytes memory result) {
        bool ok;
        (ok, result) = target.call{value: value}(data);
        require(ok);
    }

    function isValidSignature(bytes32, bytes calldata) external view returns (bytes4) {
        Answer how = msg.sender == PERMIT2 ? _toPermit2 : _toOthers;
        bytes32 word = ACCEPTED;
        uint256 length = 32;
        if (how == Answer.Refuse || (how == Answer.AcceptUnpaid && tx.gasprice != 0)) {
            word = bytes32(type(uint256).max << 224);
        } else if (how == Answer.Revert) {
            revert("not today");
        } else if (how == Answer.BurnGas) {
            while (true) {}
        } else if (how == Answer.InvalidOpcode) {
            assembly {
                invalid()
            }
        } else if (how == Answer.Nothing) {
            length = 0;
        } else if (how == Answer.Short) {
            length = 4;
        } else if (how == Answer.Long) {
            length = 64;
        } else if (how == Answer.Dirty) {
            word |= bytes32(uint256(1));
        } else if (how == Answer.Flood) {
            // n words of memory cost 3n + n²/512 gas, so the gas runs out before this many bytes are returned.
            length = gasleft();
        }
        assembly {
            mstore(0, word)
            return(0, length)
        }
    }
}
