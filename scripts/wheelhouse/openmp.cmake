# Included behind project(ggml): llama.cpp's CPU variants, and nothing else of it, compute with OpenMP (kmpc.c).
# GGML_OPENMP itself stays off: it would ask for a compiler's own OpenMP library, and give it to ggml-base as well, whose
# loops (tables for quantizing) want more of it.
function(edged_openmp)
    get_property(targets DIRECTORY src PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target IN LISTS targets)
        get_target_property(kind ${target} TYPE)
        if(target MATCHES "^ggml-cpu-" AND kind STREQUAL "MODULE_LIBRARY")
            target_compile_options(${target} PRIVATE -fopenmp)
            target_compile_definitions(${target} PRIVATE GGML_USE_OPENMP)
            target_include_directories(${target} PRIVATE ${EDGED_OPENMP_INCLUDE})
            target_link_libraries(${target} PRIVATE ${EDGED_OPENMP_LIBRARIES})
        endif()
    endforeach()
endfunction()
cmake_language(DEFER CALL edged_openmp)
