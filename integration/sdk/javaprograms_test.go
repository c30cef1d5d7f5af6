package sdk_test

import (
	"path/filepath"
	"sync"
	"testing"
)

// javaPrograms is the class path of the program of javaprograms, which shares the harness of java.
var javaPrograms = sync.OnceValues(func() (string, error) {
	return compile("javaprograms", filepath.Join("java", "src", "main", "java", "millrace", "Harness.java"))
})

// TestJavaPrograms runs the cases of javaprograms: repositories of Spring Data on the SDK for Java, without Spring Boot. Which requests they
// send is fixed in its package.
func TestJavaPrograms(t *testing.T) {
	reportJava(t, pathOf(t, javaPrograms), "millrace.Programs", 13)
}
