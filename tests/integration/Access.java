import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialAlteration;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** Makes users and access rules: Access BROKERS, a line each on its standard input: USER PASSWORD, or USER OPERATION TYPE NAME. (Python's client cannot.) */
public class Access {
    public static void main(String[] words) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", words[0]);
        List<AclBinding> rules = new ArrayList<>();
        List<UserScramCredentialAlteration> users = new ArrayList<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] said = line.split(" ");
            if (said.length == 2) {
                users.add(new UserScramCredentialUpsertion(said[0], new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), said[1]));
            } else {
                rules.add(new AclBinding(new ResourcePattern(ResourceType.fromString(said[2]), said[3], PatternType.LITERAL),
                    new AccessControlEntry("User:" + said[0], "*", AclOperation.fromString(said[1]), AclPermissionType.ALLOW)));
            }
        }
        try (Admin admin = Admin.create(properties)) {
            admin.alterUserScramCredentials(users).all().get();
            admin.createAcls(rules).all().get();
        }
    }
}
