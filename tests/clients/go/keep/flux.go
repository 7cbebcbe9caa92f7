package main

import (
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/normalize"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"hanse.test/clients/check"
)

// flux is the resource manager of Flux, used as kustomize-controller uses it.
type flux struct {
	manager        *ssa.ResourceManager
	namespace, set string
}

func newFlux(config *rest.Config, namespace, set string) *flux {
	http, err := rest.HTTPClientFor(config)
	must(err)
	mapper, err := apiutil.NewDynamicRESTMapper(config, http)
	must(err)
	direct, err := client.New(config, client.Options{Mapper: mapper})
	must(err)
	owner := ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"}
	poller := polling.NewStatusPoller(direct, mapper, polling.Options{})
	return &flux{manager: ssa.NewResourceManager(direct, poller, owner), namespace: namespace, set: set}
}

func (f *flux) objects(t *check.T) []*unstructured.Unstructured {
	objects, err := utils.ReadObjects(strings.NewReader(f.set))
	t.Must(err, "read the set")
	for _, object := range objects {
		object.SetNamespace(f.namespace)
	}
	t.Must(normalize.UnstructuredList(objects), "normalize the set")
	f.manager.SetOwnerLabels(objects, "drift", f.namespace)
	return objects
}

// round applies all: what does not differ is found out by a dry run, and not written.
func (f *flux) round(t *check.T) check.Round {
	options := ssa.DefaultApplyOptions()
	options.WaitInterval, options.WaitTimeout = 200*time.Millisecond, 20*time.Second
	changes, err := f.manager.ApplyAllStaged(t.Context(), f.objects(t), options)
	t.Must(err, "apply")
	var done check.Round
	for _, entry := range changes.Entries {
		if entry.Action != ssa.UnchangedAction {
			done.Written = append(done.Written, string(entry.Action)+" "+entry.Subject)
		}
	}
	if err := f.manager.Wait(f.objects(t), ssa.WaitOptions{Interval: 200 * time.Millisecond, Timeout: 2 * time.Second}); err != nil {
		done.Missing = err.Error()
	}
	return done
}
