// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title A contract wallet that answers isValidSignature in the wrong ways that services have to survive.
/// @notice It answers Permit2 in one way and everybody else in another, as anybody tells it. It looks at no signature.
contract HostileWallet {
    enum Answer {
        Accept,
        Refuse, // another value than the magic one
        Revert,
        BurnGas, // all that it is given
        InvalidOpcode,
        Nothing, // 0 bytes
        Short, // the magic value alone, 4 bytes
        Long, // the magic value in 64 bytes
        Dirty, // the magic value and more in its word
        Flood, // as many bytes as its gas pays for
        AcceptUnpaid // where no gas is paid for: in a simulation, and in no transaction
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
            // A word of memory costs 3 gas and its square over 512 words.
            length = gasleft();
        }
        assembly {
            mstore(0, word)
            return(0, length)
        }
    }
}
