package millrace;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.regex.Pattern;

/**
 * Run runs all cases, or those that match the argument, one after the other, and prints a line of JSON for each, of which java_test.go
 * makes a Go test.
 */
public final class Run {
    private Run() {}

    public static void main(String[] args) throws Exception {
        if (args.length > 0 && args[0].equals("going")) {
            Going.run();
            System.exit(0);
        }
        Items.add();
        Queries.add();
        Changes.add();
        Pattern only = Pattern.compile(args.length > 0 ? args[0] : "");
        for (Harness.Case c : Harness.CASES) {
            if (!only.matcher(c.name()).find()) {
                continue;
            }
            long began = System.nanoTime();
            StringWriter error = new StringWriter();
            try {
                c.body().run();
            } catch (Throwable e) {
                e.printStackTrace(new PrintWriter(error));
            }
            System.out.println(Harness.JSON.createObjectNode().put("name", c.name()).put("error", error.toString())
                .put("milliseconds", (System.nanoTime() - began) / 1_000_000));
        }
        System.exit(0); // threads of the SDK's clients would go on
    }
}
