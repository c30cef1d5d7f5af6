package millrace;

/** Run runs all cases, or those that match the argument, for java_test.go. */
public final class Run {
    private Run() {}

    public static void main(String[] args) throws Exception {
        if (args.length > 0 && args[0].equals("going")) {
            try {
                Going.run();
            } catch (Throwable e) { // threads of the SDK's clients would go on
                e.printStackTrace();
                System.exit(1);
            }
            System.exit(0);
        }
        Items.add();
        Queries.add();
        Changes.add();
        Harness.runAll(args.length > 0 ? args[0] : "");
        System.exit(0); // threads of the SDK's clients would go on
    }
}
