// Says what upstream's pod security policy finds wrong with its own fixtures: for every pod among them, at every level
// and version.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// Beyond the newest version that any check knows.
const newest = 40

func main() {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		panic(err)
	}
	seen := map[string]bool{}
	out := json.NewEncoder(os.Stdout)
	err = filepath.WalkDir(os.Args[1], func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		// Most fixtures are there again for every version.
		tree, err := yaml.YAMLToJSON(text)
		if err != nil || seen[string(tree)] {
			return err
		}
		seen[string(tree)] = true
		var pod corev1.Pod
		if err := yaml.Unmarshal(text, &pod); err != nil {
			return err
		}
		results := map[string]string{}
		for _, level := range []api.Level{api.LevelPrivileged, api.LevelBaseline, api.LevelRestricted} {
			for minor := 0; minor <= newest+1; minor++ {
				version := api.MajorMinorVersion(1, minor)
				if minor > newest {
					version = api.LatestVersion()
				}
				found := policy.AggregateCheckResults(
					evaluator.EvaluatePod(api.LevelVersion{Level: level, Version: version}, &pod.ObjectMeta, &pod.Spec))
				results[fmt.Sprintf("%s:%s", level, version.String())] = found.ForbiddenDetail()
			}
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, tree); err != nil {
			return err
		}
		return out.Encode(map[string]any{
			"call": "podSecurity", "pod": json.RawMessage(compact.Bytes()), "results": results,
		})
	})
	if err != nil {
		panic(err)
	}
}
