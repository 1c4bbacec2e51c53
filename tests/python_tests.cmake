# Tests in Python on real parts, with a client stack of their own: the files test_*.py of the folder that includes this.
# Each says in its first lines how ctest runs it:
#   # ctest: LABEL kafka TIMEOUT 120 TAKES 20
# Where its label list holds `sanitize`, the sanitizers' build runs it too. TAKES says in seconds about how long it runs, if that
# is ten or more: the longest are started first, so that in the end no processor waits for one of them. Behind it, if need be:
# BUSY: it works more than it waits, so it counts for two of those that run at a time (see run_tests in dev);
# ALONE: it measures time, so nothing runs beside it.
set(python /usr/bin/python3)
file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/test_*.py)
foreach(file IN LISTS files)
  get_filename_component(name ${file} NAME_WE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} line LIMIT_COUNT 1 REGEX "^# ctest: LABEL [a-z,-]+ TIMEOUT [0-9]+( TAKES [0-9]+)?( BUSY| ALONE)?$")
  if(NOT line MATCHES "LABEL ([a-z,-]+) TIMEOUT ([0-9]+)( TAKES ([0-9]+))?( BUSY| ALONE)?$")
    message(FATAL_ERROR "${file} has no line like '# ctest: LABEL kafka TIMEOUT 120'")
  endif()
  string(REPLACE "," ";" labels ${CMAKE_MATCH_1})
  set(timeout ${CMAKE_MATCH_2})
  set(takes 5)
  if(CMAKE_MATCH_3)
    set(takes ${CMAKE_MATCH_4})
  endif()
  set(is_alone OFF)
  set(places 1)
  if(CMAKE_MATCH_5 STREQUAL " ALONE")
    set(is_alone ON)
  elseif(CMAKE_MATCH_5 STREQUAL " BUSY")
    set(places 2)
  endif()
  if(LEASE_SANITIZE)
    math(EXPR timeout "${timeout} * 2")
  else()
    list(REMOVE_ITEM labels sanitize)
  endif()
  list(GET labels 0 label)
  add_test(NAME ${label}.${name}
    COMMAND ${python} -m pytest -q -x -p no:cacheprovider --tb=short ${file})
  set_tests_properties(${label}.${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout} COST ${takes} PROCESSORS ${places} RUN_SERIAL ${is_alone}
    ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endforeach()
