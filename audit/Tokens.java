import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.UUID;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Tokens as their documentation says they are made: HMAC-SHA256 of a claim id's 16 bytes, in hexadecimal. There may be several keys, or none. */
final class Tokens {
    private final List<Mac> macs = new ArrayList<>();

    void addKey(byte[] key) throws GeneralSecurityException {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        macs.add(mac);
    }

    boolean isEmpty() {
        return macs.isEmpty();
    }

    /** The claim's token by each of the keys. */
    List<String> of(String claimId) {
        UUID id;
        try {
            id = UUID.fromString(claimId);
        } catch (IllegalArgumentException noClaim) {
            return List.of();
        }
        byte[] bytes = ByteBuffer.allocate(16).putLong(id.getMostSignificantBits()).putLong(id.getLeastSignificantBits()).array();
        List<String> tokens = new ArrayList<>();
        for (Mac mac : macs) {
            tokens.add(HexFormat.of().formatHex(mac.doFinal(bytes)));
        }
        return tokens;
    }
}
