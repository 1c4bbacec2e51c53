import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * A fact is an array of bytes: a key whose byte order is the order of its parts (texts end with a zero byte, numbers are big-endian and
 * not negative), and behind it anything. Facts are sorted as bytes, so facts of one key come together, in the order of their numbers.
 */
final class Fact {
    static final long NONE = Long.MIN_VALUE; // of a number that may be absent
    static final long LAST = Long.MAX_VALUE; // sorts behind every journal number

    private Fact() {}

    /** Writes a fact; used again and again by one thread. */
    static final class Out {
        private byte[] bytes = new byte[512];
        private int size;

        Out start() {
            size = 0;
            return this;
        }

        private void room(int more) {
            if (size + more > bytes.length) {
                bytes = Arrays.copyOf(bytes, Math.max(bytes.length * 2, size + more));
            }
        }

        Out key(String text) {
            byte[] utf8 = text.replace('\0', '\ufffd').getBytes(StandardCharsets.UTF_8);
            room(utf8.length + 1);
            System.arraycopy(utf8, 0, bytes, size, utf8.length);
            size += utf8.length;
            bytes[size++] = 0;
            return this;
        }

        Out number(long value) {
            room(8);
            for (int shift = 56; shift >= 0; shift -= 8) {
                bytes[size++] = (byte) (value >>> shift);
            }
            return this;
        }

        Out type(int value) {
            room(1);
            bytes[size++] = (byte) value;
            return this;
        }

        Out flag(boolean value) {
            return type(value ? 1 : 0);
        }

        Out raw(byte[] value) {
            room(value.length);
            System.arraycopy(value, 0, bytes, size, value.length);
            size += value.length;
            return this;
        }

        /** A number behind the key, in as few bytes as it needs: its order as bytes means nothing. */
        Out value(long value) {
            long left = value == NONE ? 0 : (value << 1 ^ value >> 63) + 1;
            room(10);
            while ((left & ~0x7fL) != 0) {
                bytes[size++] = (byte) (left | 0x80);
                left >>>= 7;
            }
            bytes[size++] = (byte) left;
            return this;
        }

        Out text(String value) {
            if (value == null) {
                return value(NONE);
            }
            byte[] utf8 = value.getBytes(StandardCharsets.UTF_8);
            return value(utf8.length).raw(utf8);
        }

        byte[] done() {
            return Arrays.copyOf(bytes, size);
        }
    }

    /** Reads one in the order in which it was written. */
    static final class In {
        private final byte[] bytes;
        private int at;

        In(byte[] bytes) {
            this.bytes = bytes;
        }

        String key() {
            int end = at;
            while (bytes[end] != 0) {
                end++;
            }
            String text = new String(bytes, at, end - at, StandardCharsets.UTF_8);
            at = end + 1;
            return text;
        }

        long number() {
            long value = 0;
            for (int i = 0; i < 8; i++) {
                value = value << 8 | bytes[at++] & 0xff;
            }
            return value;
        }

        int type() {
            return bytes[at++];
        }

        boolean flag() {
            return type() != 0;
        }

        byte[] raw(int size) {
            at += size;
            return Arrays.copyOfRange(bytes, at - size, at);
        }

        long value() {
            long coded = 0;
            int shift = 0;
            byte next;
            do {
                next = bytes[at++];
                coded |= (next & 0x7fL) << shift;
                shift += 7;
            } while (next < 0);
            return coded == 0 ? NONE : coded - 1 >>> 1 ^ -(coded - 1 & 1);
        }

        String text() {
            long size = value();
            return size == NONE ? null : new String(raw((int) size), StandardCharsets.UTF_8);
        }

        /** Texts behind their number. */
        List<String> texts() {
            List<String> texts = new ArrayList<>();
            for (long left = number(); left > 0; left--) {
                texts.add(text());
            }
            return texts;
        }
    }
}
