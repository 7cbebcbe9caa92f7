// Keep holds a set of objects in a namespace as a delivery tool does: for each line that it is given it compares what is there
// with what should be, by the tool's own library, corrects it if it differs and only then, and says what it wrote and whether
// all is healthy.
//
//	keep helm|flux NAMESPACE FILE
package main

import (
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"hanse.test/clients/check"
)

func main() {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: keep helm|flux NAMESPACE FILE")
		os.Exit(2)
	}
	config, err := clientcmd.BuildConfigFromFlags("", check.Kubeconfig())
	must(err)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	set, err := os.ReadFile(os.Args[3])
	must(err)
	switch os.Args[1] {
	case "helm":
		check.Rounds(newHelm(os.Args[2], string(set)).round)
	case "flux":
		check.Rounds(newFlux(config, os.Args[2], string(set)).round)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
