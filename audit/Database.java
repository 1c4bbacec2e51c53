import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;

/** A connection that only reads, from the same connection string as the other programs take (libpq's), by a driver that is not libpq. */
final class Database implements AutoCloseable {
    static final int FETCH_ROWS = 500; // some may have 64 KB
    private static final Map<String, String> SAME = Map.of("user", "user", "password", "password", "sslmode", "sslmode", "sslrootcert", "sslrootcert",
            "sslcert", "sslcert", "sslkey", "sslkey", "connect_timeout", "connectTimeout", "application_name", "ApplicationName");

    final Connection connection;
    final String where;

    interface Rows {
        void take(ResultSet row) throws Exception;
    }

    Database(String conninfo) throws SQLException, Unusable {
        Map<String, String> words = parse(conninfo);
        String host = words.getOrDefault("hostaddr", words.getOrDefault("host", "localhost"));
        if (host.startsWith("/")) {
            throw new Unusable("the driver connects by TCP, not by the socket in " + host + ": name a host");
        }
        String[] hosts = host.split(","), ports = words.getOrDefault("port", "5432").split(",");
        StringBuilder url = new StringBuilder();
        for (int i = 0; i < hosts.length; i++) {
            url.append(i == 0 ? "" : ",").append(hosts[i].contains(":") ? "[" + hosts[i] + "]" : hosts[i]).append(':').append(ports[Math.min(i, ports.length - 1)]);
        }
        Properties properties = new Properties();
        properties.put("ApplicationName", "lease-audit");
        SAME.forEach((theirs, driver) -> {
            if (words.containsKey(theirs)) {
                properties.put(driver, words.get(theirs));
            }
        });
        if (!properties.containsKey("password") && System.getenv("PGPASSWORD") != null) {
            properties.put("password", System.getenv("PGPASSWORD"));
        }
        if (!properties.containsKey("user")) {
            properties.put("user", System.getenv().getOrDefault("PGUSER", System.getProperty("user.name")));
        }
        if (hosts.length > 1) {
            properties.put("targetServerType", "primary".equals(words.get("target_session_attrs")) || "read-write".equals(words.get("target_session_attrs")) ? "primary" : "any");
        }
        where = url + "/" + words.getOrDefault("dbname", properties.getProperty("user"));
        connection = DriverManager.getConnection("jdbc:postgresql://" + where, properties);
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY");
            statement.execute("SET search_path = pg_catalog");
        }
        connection.commit();
    }

    /** key=value pairs with libpq's quotes, or a URI. */
    static Map<String, String> parse(String conninfo) throws Unusable {
        Map<String, String> words = new LinkedHashMap<>();
        if (conninfo.startsWith("postgresql://") || conninfo.startsWith("postgres://")) {
            return parseUri(conninfo);
        }
        int at = 0;
        while (at < conninfo.length()) {
            if (Character.isWhitespace(conninfo.charAt(at))) {
                at++;
                continue;
            }
            int equals = conninfo.indexOf('=', at);
            if (equals < 0) {
                throw new Unusable("a connection string is key=value pairs, or postgresql://...");
            }
            String key = conninfo.substring(at, equals).trim();
            at = equals + 1;
            while (at < conninfo.length() && Character.isWhitespace(conninfo.charAt(at))) {
                at++;
            }
            boolean isQuoted = at < conninfo.length() && conninfo.charAt(at) == '\'';
            at += isQuoted ? 1 : 0;
            StringBuilder value = new StringBuilder();
            while (at < conninfo.length() && (isQuoted ? conninfo.charAt(at) != '\'' : !Character.isWhitespace(conninfo.charAt(at)))) {
                if (conninfo.charAt(at) == '\\' && at + 1 < conninfo.length()) {
                    at++;
                }
                value.append(conninfo.charAt(at++));
            }
            at += isQuoted ? 1 : 0;
            words.put(key, value.toString());
        }
        return words;
    }

    private static Map<String, String> parseUri(String text) throws Unusable {
        Map<String, String> words = new HashMap<>();
        java.net.URI uri = java.net.URI.create(text);
        if (uri.getHost() == null) {
            throw new Unusable("of several hosts, write key=value pairs: host=a,b port=...");
        }
        words.put("host", uri.getHost().replaceAll("[\\[\\]]", ""));
        if (uri.getPort() > 0) {
            words.put("port", Integer.toString(uri.getPort()));
        }
        if (uri.getPath() != null && uri.getPath().length() > 1) {
            words.put("dbname", uri.getPath().substring(1));
        }
        if (uri.getUserInfo() != null) {
            String[] user = uri.getUserInfo().split(":", 2);
            words.put("user", user[0]);
            if (user.length > 1) {
                words.put("password", user[1]);
            }
        }
        if (uri.getQuery() != null) {
            for (String pair : uri.getQuery().split("&")) {
                String[] word = pair.split("=", 2);
                words.put(word[0], word.length > 1 ? word[1] : "");
            }
        }
        return words;
    }

    /** Hands the rows over one by one, some at a time in memory. */
    void each(String sql, Rows rows, Object... parameters) throws Exception {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            statement.setFetchSize(FETCH_ROWS);
            for (int i = 0; i < parameters.length; i++) {
                statement.setObject(i + 1, parameters[i]);
            }
            try (ResultSet found = statement.executeQuery()) {
                while (found.next()) {
                    rows.take(found);
                }
            }
        }
    }

    String value(String sql, Object... parameters) throws Exception {
        String[] value = {null};
        each(sql, row -> value[0] = row.getString(1), parameters);
        return value[0];
    }

    boolean has(String relation) throws Exception {
        return "t".equals(value("SELECT to_regclass(?) IS NOT NULL", relation));
    }

    static long number(ResultSet row, int column) throws SQLException {
        long value = row.getLong(column);
        return row.wasNull() ? Fact.NONE : value;
    }

    /** The next statement sees what is committed by then. */
    void over() throws SQLException {
        connection.rollback();
    }

    @Override
    public void close() throws SQLException {
        connection.close();
    }
}
