// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

interface IERC1271 {
    function isValidSignature(bytes32 hash, bytes calldata signature) external view returns (bytes4);
}

/// @title One-time transfers by signature, compatible with the signature transfer part of Uniswap's Permit2.
/// @notice An owner who approved this contract once signs each payment off the chain. The nonce is one bit of an
///         unordered bitmap: the upper 248 bits choose the word, the lower 8 the bit.
/// @dev Same ABI, EIP-712 types, errors and order of checks as the contract at
///      0x000000000022D473030F116dDEE9F6B43aC78BA3, of which batched permits and stored allowances are left out.
///      The domain has no version. Its separator is computed on every call, because the code is placed by genesis.
contract Permit2 {
    struct TokenPermissions {
        address token;
        uint256 amount;
    }

    struct PermitTransferFrom {
        TokenPermissions permitted;
        uint256 nonce;
        uint256 deadline;
    }

    struct SignatureTransferDetails {
        address to;
        uint256 requestedAmount;
    }

    error InvalidNonce();
    error SignatureExpired(uint256 signatureDeadline);
    error InvalidAmount(uint256 maxAmount);
    error InvalidSignatureLength();
    error InvalidSignature();
    error InvalidSigner();
    error InvalidContractSignature();

    event UnorderedNonceInvalidation(address indexed owner, uint256 word, uint256 mask);

    bytes32 private constant DOMAIN_TYPEHASH =
        keccak256("EIP712Domain(string name,uint256 chainId,address verifyingContract)");
    bytes32 private constant DOMAIN_NAME = keccak256("Permit2");
    bytes32 private constant TOKEN_PERMISSIONS_TYPEHASH = keccak256("TokenPermissions(address token,uint256 amount)");
    bytes32 private constant TRANSFER_TYPEHASH = keccak256(
        "PermitTransferFrom(TokenPermissions permitted,address spender,uint256 nonce,uint256 deadline)TokenPermissions(address token,uint256 amount)"
    );
    string private constant WITNESS_TRANSFER_STUB =
        "PermitWitnessTransferFrom(TokenPermissions permitted,address spender,uint256 nonce,uint256 deadline,";

    /// @notice The spent nonces of an owner, 256 to a word.
    mapping(address owner => mapping(uint256 wordPos => uint256)) public nonceBitmap;

    /// @notice Moves a token as `owner` signed for the caller as spender.
    function permitTransferFrom(
        PermitTransferFrom calldata permit,
        SignatureTransferDetails calldata transferDetails,
        address owner,
        bytes calldata signature
    ) external {
        bytes32 message = keccak256(
            abi.encode(TRANSFER_TYPEHASH, _hash(permit.permitted), msg.sender, permit.nonce, permit.deadline)
        );
        _transfer(permit, transferDetails, owner, message, signature);
    }

    /// @notice Does what permitTransferFrom does for a signature that also covers another struct, the witness.
    /// @param witness The EIP-712 hash of the witness.
    /// @param witnessTypeString The rest of the type after "deadline,": the witness field, a closing parenthesis, and
    ///        the referenced types in alphabetical order.
    function permitWitnessTransferFrom(
        PermitTransferFrom calldata permit,
        SignatureTransferDetails calldata transferDetails,
        address owner,
        bytes32 witness,
        string calldata witnessTypeString,
        bytes calldata signature
    ) external {
        bytes32 typehash = keccak256(abi.encodePacked(WITNESS_TRANSFER_STUB, witnessTypeString));
        bytes32 message = keccak256(
            abi.encode(typehash, _hash(permit.permitted), msg.sender, permit.nonce, permit.deadline, witness)
        );
        _transfer(permit, transferDetails, owner, message, signature);
    }

    /// @notice Marks nonces of the caller as spent without a transfer: the bits that `mask` has in the word.
    function invalidateUnorderedNonces(uint256 wordPos, uint256 mask) external {
        nonceBitmap[msg.sender][wordPos] |= mask;
        emit UnorderedNonceInvalidation(msg.sender, wordPos, mask);
    }

    function DOMAIN_SEPARATOR() public view returns (bytes32) {
        return keccak256(abi.encode(DOMAIN_TYPEHASH, DOMAIN_NAME, block.chainid, address(this)));
    }

    function _transfer(
        PermitTransferFrom calldata permit,
        SignatureTransferDetails calldata details,
        address owner,
        bytes32 message,
        bytes calldata signature
    ) private {
        if (block.timestamp > permit.deadline) revert SignatureExpired(permit.deadline);
        if (details.requestedAmount > permit.permitted.amount) revert InvalidAmount(permit.permitted.amount);
        _spend(owner, permit.nonce);
        _verify(owner, keccak256(abi.encodePacked(hex"1901", DOMAIN_SEPARATOR(), message)), signature);
        _move(permit.permitted.token, owner, details.to, details.requestedAmount);
    }

    function _spend(address owner, uint256 nonce) private {
        uint256 bit = 1 << (nonce & 0xff);
        uint256 word = nonceBitmap[owner][nonce >> 8];
        if (word & bit != 0) revert InvalidNonce();
        nonceBitmap[owner][nonce >> 8] = word | bit;
    }

    /// @dev 65 bytes are r, s, v; 64 bytes are the compact form of EIP-2098. An owner with code is asked by EIP-1271.
    function _verify(address owner, bytes32 digest, bytes calldata signature) private view {
        if (owner.code.length != 0) {
            bytes4 answer = IERC1271(owner).isValidSignature(digest, signature);
            if (answer != IERC1271.isValidSignature.selector) revert InvalidContractSignature();
            return;
        }
        bytes32 r;
        bytes32 s;
        uint8 v;
        if (signature.length == 65) {
            (r, s) = abi.decode(signature, (bytes32, bytes32));
            v = uint8(signature[64]);
        } else if (signature.length == 64) {
            uint256 vs;
            (r, vs) = abi.decode(signature, (bytes32, uint256));
            s = bytes32(vs & (type(uint256).max >> 1));
            v = uint8(vs >> 255) + 27;
        } else {
            revert InvalidSignatureLength();
        }
        address signer = ecrecover(digest, v, r, s);
        if (signer == address(0)) revert InvalidSignature();
        if (signer != owner) revert InvalidSigner();
    }

    /// @dev Accepts tokens whose transferFrom returns nothing and tokens whose transferFrom returns true.
    function _move(address token, address from, address to, uint256 amount) private {
        (bool ok, bytes memory answer) =
            token.call(abi.encodeWithSignature("transferFrom(address,address,uint256)", from, to, amount));
        if (ok && answer.length != 0) ok = answer.length >= 32 && abi.decode(answer, (uint256)) == 1;
        require(ok, "TRANSFER_FROM_FAILED");
    }

    function _hash(TokenPermissions calldata permitted) private pure returns (bytes32) {
        return keccak256(abi.encode(TOKEN_PERMISSIONS_TYPEHASH, permitted.token, permitted.amount));
    }
}
