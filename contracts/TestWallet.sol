// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title A contract wallet (EIP-1271) with one owner, who signs 65 bytes for it.
/// @notice An account that delegates its code to this contract (EIP-7702) has no owner in its storage. Its own key is
///         then the owner.
/// @dev It accepts its owner's signature over the bare hash, so two wallets of one owner accept each other's
///      signatures. A wallet for real use includes its own address in what is signed.
contract TestWallet {
    bytes4 private constant ACCEPTED = 0x1626ba7e;
    bytes4 private constant REFUSED = 0xffffffff;

    error OnlyOwner();

    address private _owner;

    constructor(address owner_) {
        _owner = owner_;
    }

    receive() external payable {}

    function owner() public view returns (address) {
        return _owner == address(0) ? address(this) : _owner;
    }

    /// @notice Makes a call from this wallet. If the call reverts, this reverts with the same data.
    function execute(address target, uint256 value, bytes calldata data) external returns (bytes memory answer) {
        if (msg.sender != owner()) revert OnlyOwner();
        bool ok;
        (ok, answer) = target.call{value: value}(data);
        if (!ok) {
            assembly ("memory-safe") {
                revert(add(answer, 32), mload(answer))
            }
        }
    }

    /// @notice Takes 65 bytes of r, s and v.
    function isValidSignature(bytes32 hash, bytes calldata signature) external view returns (bytes4) {
        if (signature.length != 65) return REFUSED;
        (bytes32 r, bytes32 s) = abi.decode(signature, (bytes32, bytes32));
        address signer = ecrecover(hash, uint8(signature[64]), r, s);
        return signer != address(0) && signer == owner() ? ACCEPTED : REFUSED;
    }
}
