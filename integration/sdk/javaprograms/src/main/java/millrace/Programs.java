package millrace;

/** Programs runs all cases, or those that match the argument, for javaprograms_test.go. */
public final class Programs {
    private Programs() {}

    public static void main(String[] args) {
        SpringData.add();
        Harness.runAll(args.length > 0 ? args[0] : "");
        System.exit(0); // threads of the SDK's clients would go on
    }
}
